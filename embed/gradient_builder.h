// GradientBuilder gathers one micro-batch's flat gradient from the tensors that a program gives,
// and says which shards each tensor completes. ProgramComputer uses it. Threads: any; several may
// give different tensors at once. Owns: which tensors it has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "common/float_buffer.h"
#include "common/ids.h"
#include "common/result.h"
#include "plan/job_plan.h"

namespace pando {

class GradientBuilder {
 public:
  // `plan` outlives it; `buffer` has the size of the layout, and may have any content.
  GradientBuilder(const JobPlan& plan, SharedBuffer buffer);

  // Copies values · weight and returns the shards that are now complete. kInvalidArgument: no such
  // tensor, or it was given before. kInternal: a value is not finite. Errors name the tensor.
  Result<std::vector<ShardId>> Give(size_t tensor, const float* values, float weight);
  // Does the same for a tensor without a gradient.
  std::vector<ShardId> GiveZeros(size_t tensor);
  // Returns the tensors that were not given, ascending.
  std::vector<size_t> Missing() const;

  const SharedBuffer& buffer() const { return buffer_; }

 private:
  std::vector<ShardId> Complete(size_t tensor);

  const JobPlan& plan_;
  const SharedBuffer buffer_;
  mutable std::mutex mutex_;           // guards:
  std::vector<bool> is_given_;         // by tensor
  std::vector<uint32_t> open_counts_;  // by shard: tensors that are not copied yet
};

}  // namespace pando
