// ShardPlan cuts the flat vector into shards (P5), by the job's identity alone. Small tensors share
// a shard; tensors larger than the target are cut into equal pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/ids.h"
#include "plan/tensor_layout.h"

namespace pando {

struct ShardRange {  // floats [first, last) of the flat vector; first begins a 64-byte line
  size_t first = 0;
  size_t last = 0;
  size_t size() const { return last - first; }
};

class ShardPlan {
 public:
  explicit ShardPlan(const TensorLayout& layout)
      : ShardPlan(layout, TargetBytes(layout.float_count() * sizeof(float))) {}
  // Takes another target size, for benchmarks of shard sizes that no model has.
  ShardPlan(const TensorLayout& layout, size_t target_bytes);
  static size_t TargetBytes(size_t model_bytes);  // clamp(model bytes / 64, 4 KiB, 4 MiB)

  uint32_t shard_count() const { return static_cast<uint32_t>(ranges_.size()); }
  const ShardRange& range(ShardId shard) const { return ranges_[shard.value()]; }
  const std::vector<ShardRange>& ranges() const { return ranges_; }
  // Run is a contiguous run of shard ids [first, last). Covering returns the shards of these
  // floats.
  struct Run {
    uint32_t first = 0;
    uint32_t last = 0;
  };
  Run Covering(size_t first_float, size_t last_float) const;

 private:
  std::vector<ShardRange> ranges_;
};

}  // namespace pando
