// The copies that a computing thread's GPU has of its inputs: samples (BatchUpload) and parameters
// (ParameterCopy). Used by GpuLauncher and EvaluationPass. Threads: as Device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "common/batch.h"
#include "common/float_buffer.h"
#include "kernels/copy_queue.h"
#include "kernels/device_memory.h"
#include "models/network.h"
#include "plan/payload_plan.h"
#include "plan/shard_plan.h"
#include "train/gpu/device_codec.h"

namespace pando {

// Brings the samples of the next micro-batch to a GPU while the previous one is computed. The copy
// waits only for the kernel that reads the previous samples, so two buffers are enough: the batch
// in pinned memory, and one buffer on the GPU. Owns: a copy stream, and memory of the GPU for one
// batch.
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

// A GPU's copy of one version of the parameters. Shards are copied while kernels run, and decoded
// on the GPU. Training and evaluation have one each. Owns: from its first use on, a flat vector of
// the GPU's memory, and one of encoded shards.
class ParameterCopy {
 public:
  // All references outlive it. `payloads`: how the host's shards are encoded, if the device decodes
  // them; null: they are floats.
  ParameterCopy(Device device, const ShardPlan& shards, CopyQueue& copies,
                const PayloadPlan* payloads = nullptr);

  // The address of a shard on the host, once the host has it.
  using Source = std::function<const float*(ShardId shard)>;
  // From now on this copies the parameters at `source`, which `serial` identifies. Shards of the
  // same serial that were copied before stay. Kernels that are launched already read the former
  // ones.
  void Follow(uint64_t serial, Source source);
  bool Has(ShardPlan::Run shards) const;
  // Copies these shards, which the host has. Kernels that are launched from now on read them.
  // Pinned memory of the host must not change until those kernels have run.
  void Bring(ShardPlan::Run shards);
  // The GPU's flat vector. Read only shards that Bring has copied.
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
