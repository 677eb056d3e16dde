#include "train/gpu/batch_upload.h"

#include <span>

#include "common/check.h"
#include "kernels/batch_block.h"

namespace pando {

void BatchUpload::Bring(const std::shared_ptr<const Batch>& batch) {
  if (batch == batch_) return;
  PANDO_CHECK(batch->pinned != nullptr);
  copies_.Await(on_its_way_);  // then reading threads may use its pinned memory again
  const BatchBlock block(*batch);
  if (memory_.size_bytes() < block.size_bytes()) {
    Synchronize(device_);  // kernels have read the previous batch
    memory_ = DeviceMemory(device_, block.size_bytes());
  }
  batch_ = batch;
  copies_.ToDevice(std::as_bytes(batch->pinned->span()).first(block.size_bytes()), memory_.data());
  on_its_way_ = copies_.Mark();
}

// Later copies wait for the import, but not for kernels that are launched behind it.
void BatchUpload::SetIn(Network& network, const std::shared_ptr<const Batch>& batch,
                        MicroBatchName name) {
  Bring(batch);
  copies_.HoldLaunches();
  const DeviceBatch there = BatchBlock(*batch).At(memory_.data());
  network.SetBatch(*batch, name, Mode::kTrain, &there);
  copies_.AwaitLaunched();
}

}  // namespace pando
