// PayloadPlan, a part of the JobPlan, is the form in which each shard travels, and its place in a
// vector of all encoded shards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/job.h"
#include "plan/shard_codec.h"
#include "plan/shard_plan.h"
#include "plan/tensor_layout.h"

namespace pando {

// The requested form of a shard's parameters.
enum class ParamsForm : uint8_t {
  kExact,    // floats: for evaluation, and for training without a pull codec
  kEncoded,  // with the job's pull codec: for training
};

class PayloadPlan {
 public:
  PayloadPlan(const PayloadOptions& options, const TensorLayout& layout, const ShardPlan& shards);

  PayloadCodec kind() const { return codec_; }
  // Returns whether all payloads travel as floats.
  bool is_exact() const { return codecs_.empty(); }
  // Returns whether a payload's error must be added to the micro-batch's next gradient. If so, a
  // payload depends on earlier ones of the same worker.
  bool has_feedback() const;
  // Returns null if the shard travels as floats.
  const ShardCodec* codec(ShardId shard) const {
    return is_exact() ? nullptr : &codecs_[shard.value()];
  }
  size_t PayloadBytes(ShardId shard) const;
  // The floats in a vector of all encoded shards, and the place of a shard in it.
  size_t float_count() const { return offsets_.back(); }
  size_t offset(ShardId shard) const { return offsets_[shard.value()]; }
  ShardRange range(ShardId shard) const {
    return {offsets_[shard.value()], offsets_[shard.value() + 1]};
  }

 private:
  PayloadCodec codec_;
  std::vector<ShardCodec> codecs_;  // by shard; empty if all travel as floats
  std::vector<size_t> offsets_;     // by shard, then the end; in floats
};

}  // namespace pando
