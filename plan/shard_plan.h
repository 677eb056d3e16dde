// ShardPlan cuts the flat vector into shards (P5). Small tensors share a shard; tensors larger than
// the target size are cut into equal parts, as far as each has whole pieces.
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
  // For up to this many servers all shards have the same target size.
  static constexpr uint32_t kFewServers = 16;
  // With more servers the target is a 32nd of the shard's place in the vector, from 4 KiB to an
  // eighth of a server's share. All workers send a shard to one server, and it sends the shard to
  // all of them. Backward computes the front last and forward needs it first, so little computing
  // hides its transfer. Shards at the front are therefore smallest.
  struct Cut {
    uint32_t servers_max = kFewServers;  // for which the shards are small enough
    size_t target_bytes = 0;  // above 0: of all shards, for benchmarks of sizes that no model has
  };
  explicit ShardPlan(const TensorLayout& layout) : ShardPlan(layout, Cut()) {}
  ShardPlan(const TensorLayout& layout, const Cut& cut);
  // With few servers: clamp(model bytes / 64, 4 KiB, 4 MiB).
  static size_t TargetBytes(size_t model_bytes);

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
