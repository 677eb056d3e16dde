// BatchUpload brings the samples of the next micro-batch to a GPU while the previous one is
// computed. The copy waits only for the kernel that reads the previous samples, so two buffers are
// enough: the batch in pinned memory, and one buffer on the GPU. GpuLauncher uses it. Threads: as
// Device. Owns: a copy stream, and memory of the GPU for one batch.
#pragma once

#include <memory>

#include "common/batch.h"
#include "kernels/copy_queue.h"
#include "kernels/device_memory.h"
#include "models/network.h"

namespace pando {

class BatchUpload {
 public:
  explicit BatchUpload(Device device) : device_(device), copies_(device) {}

  // Begins to copy this batch over the previous one, unless it is the same. Waits if the previous
  // one is still on its way.  REQUIRES: it is pinned (PinBatch).
  void Bring(const std::shared_ptr<const Batch>& batch);
  // Copies the batch, if it was not copied yet, and gives it to the network.
  void SetIn(Network& network, const std::shared_ptr<const Batch>& batch, MicroBatchName name);

 private:
  const Device device_;
  DeviceMemory memory_;
  std::shared_ptr<const Batch> batch_;  // what memory_ holds, once it has arrived
  CopyQueue copies_;                    // destroyed first, because it waits for its copies
  CopyQueue::Ticket on_its_way_ = 0;
};

}  // namespace pando
