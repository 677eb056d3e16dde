#include "train/gpu/input_copies.h"

#include <algorithm>
#include <span>
#include <utility>

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

ParameterCopy::ParameterCopy(Device device, const ShardPlan& shards, CopyQueue& copies,
                             const PayloadPlan* payloads)
    : device_(device),
      shards_(shards),
      copies_(copies),
      payloads_(payloads),
      has_shard_(shards.shard_count()) {
  if (payloads != nullptr && DeviceCodec::CanCode(device, *payloads))
    decoder_.emplace(device, *payloads, shards.shard_count());
}

void ParameterCopy::Follow(uint64_t serial, Source source) {
  if (values_.size() == 0) {
    values_ = DeviceFloats(device_, shards_.ranges().back().last);
    if (decoder_) encoded_ = DeviceFloats(device_, payloads_->float_count());
  }
  source_ = std::move(source);
  if (serial_ == serial) return;
  serial_ = serial;
  has_shard_.assign(shards_.shard_count(), false);
  copies_.AwaitLaunched();
}

bool ParameterCopy::Has(ShardPlan::Run shards) const {
  return std::find(has_shard_.begin() + shards.first, has_shard_.begin() + shards.last, false) ==
         has_shard_.begin() + shards.last;
}

void ParameterCopy::Bring(ShardPlan::Run shards) {
  if (Has(shards)) return;
  std::vector<uint32_t> brought;
  for (uint32_t s = shards.first; s < shards.last;) {
    const auto begin = has_shard_.begin() + s;
    const auto end = std::find(begin, has_shard_.begin() + shards.last, !*begin);
    const auto next = static_cast<uint32_t>(end - has_shard_.begin());
    if (!*begin) BringRun({s, next});
    for (; s < next; ++s) {
      if (!has_shard_[s]) brought.push_back(s);
    }
  }
  copies_.HoldLaunches();
  for (uint32_t s : brought) {
    has_shard_[s] = true;
    if (decoder_)
      decoder_->Decode(ShardId(s), encoded_.data(),
                       values_.data() + shards_.range(ShardId(s)).first);
  }
}

// On the GPU shards lie one behind the other. Those that do so on the host too come in one copy.
void ParameterCopy::BringRun(ShardPlan::Run shards) {
  for (uint32_t s = shards.first; s < shards.last;) {
    const float* host = source_(ShardId(s));
    const size_t first = PlaceFor(s).first;
    size_t last = PlaceFor(s).last;
    while (++s < shards.last && source_(ShardId(s)) == host + (PlaceFor(s).first - first))
      last = PlaceFor(s).last;
    copies_.ToDevice(std::as_bytes(std::span(host, last - first)), arrived().data() + first);
  }
}

ShardRange ParameterCopy::PlaceFor(uint32_t shard) const {
  return decoder_ ? payloads_->range(ShardId(shard)) : shards_.range(ShardId(shard));
}

}  // namespace pando
