// The copies on a computing thread's GPU: samples (BatchUpload) and parameters (ParameterCopy).
// GpuLauncher and EvaluationPass use them. Threads: as Device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "common/batch.h"
#include "common/float_buffer.h"
#include "kernels/device.h"
#include "models/network.h"
#include "plan/payload_plan.h"
#include "plan/shard_plan.h"
#include "train/gpu/device_codec.h"

namespace pando {

// Brings the samples of the next micro-batch to a GPU while the one before computes. Its copy waits
// for one kernel alone, the one that has read the samples before them, so two buffers do: the one
// that was read into, in pinned memory, and one on the GPU.
// Owns: a copy stream, and memory of the GPU for one batch.
class BatchUpload {
 public:
  explicit BatchUpload(Device device) : device_(device), copies_(device) {}

  // Begins to bring it in the place of what was brought before, unless that is this one. Waits
  // where the former one is on its way still.  REQUIRES: it is pinned (PinBatch).
  void Bring(const std::shared_ptr<const Batch>& batch);
  // Brings it, if it has not been, and gives it to the network.
  void SetIn(Network& network, const std::shared_ptr<const Batch>& batch, MicroBatchName name);

 private:
  const Device device_;
  DeviceMemory memory_;
  std::shared_ptr<const Batch> batch_;  // what memory_ holds, once it has arrived
  CopyQueue copies_;                    // ends first: it waits
  CopyQueue::Ticket on_its_way_ = 0;
};

// A GPU's copy of one version of the parameters, brought over shard by shard while kernels run, and
// decoded there. Training and evaluation have one each.
// Owns: a flat vector of the GPU's memory, and one of encoded shards, from the first use on.
class ParameterCopy {
 public:
  // All references outlive it. `payloads`: how the host has them, if the device codes these; null:
  // as floats.
  ParameterCopy(Device device, const ShardPlan& shards, CopyQueue& copies,
                const PayloadPlan* payloads = nullptr);

  // Where a shard is on the host, once it is there.
  using Source = std::function<const float*(ShardId shard)>;
  // A copy of the parameters at `source` from now on, which `serial` tells from others: what has
  // come over of them before stays. What is launched already still reads the former ones.
  void Follow(uint64_t serial, Source source);
  bool Has(ShardPlan::Run shards) const;
  // These shards of it, which are there on the host: what is launched from now on reads them. The
  // host's memory, if it is pinned, stays as it is until that has run.
  void Bring(ShardPlan::Run shards);
  // The GPU's flat vector, to be read where Bring has been.
  const float* values() const { return values_.data(); }

 private:
  void BringRun(ShardPlan::Run shards);
  ShardRange PlaceFor(uint32_t shard) const;  // in arrived()
  FloatBuffer& arrived() { return decoder_ ? encoded_ : values_; }

  const Device device_;
  const ShardPlan& shards_;
  CopyQueue& copies_;
  const PayloadPlan* const payloads_;
  std::optional<DeviceCodec> decoder_;
  FloatBuffer values_;
  FloatBuffer encoded_;
  std::optional<uint64_t> serial_;
  Source source_;
  std::vector<bool> has_shard_;
};

}  // namespace pando
