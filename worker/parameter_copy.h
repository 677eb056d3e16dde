// ParameterCopy is a GPU's copy of one version of the parameters, brought over shard by shard while
// kernels run. Used by a computing thread, for training and for evaluation each one.
// Threads: as Device. Owns: a flat vector of the GPU's memory, from the first use on.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/float_buffer.h"
#include "common/tensor_layout.h"
#include "kernels/copy_queue.h"
#include "kernels/device.h"

namespace pando {

class ParameterCopy {
 public:
  // `shards` and `copies` outlive it.
  ParameterCopy(Device device, const ShardPlan& shards, CopyQueue& copies);

  // A copy of the flat vector at `host` from now on, which `serial` tells from others: what has
  // come over of it before stays. What is launched already still reads the former one.
  void Follow(uint64_t serial, const float* host);
  bool Has(ShardPlan::Run shards) const;
  // These shards of it, which are there on the host: what is launched from now on reads them. The
  // host's memory, if it is pinned, stays as it is until that has run.
  void Bring(ShardPlan::Run shards);
  // The GPU's flat vector, to be read where Bring has been.
  const float* values() const { return values_.data(); }

 private:
  void BringRun(ShardPlan::Run shards);

  const Device device_;
  const ShardPlan& shards_;
  CopyQueue& copies_;
  FloatBuffer values_;
  std::optional<uint64_t> serial_;
  const float* host_ = nullptr;
  std::vector<bool> has_shard_;
};

}  // namespace pando
