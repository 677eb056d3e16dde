#include "plan/payload_plan.h"

namespace pando {

PayloadPlan::PayloadPlan(const PayloadOptions& options, const TensorLayout& layout,
                         const ShardPlan& shards)
    : codec_(options.codec) {
  offsets_.push_back(0);
  for (const ShardRange& range : shards.ranges()) {
    if (codec_ != PayloadCodec::kFp32) codecs_.emplace_back(options, layout, range);
    const size_t floats =
        is_exact() ? range.size() : codecs_.back().encoded_bytes() / sizeof(float);
    offsets_.push_back(offsets_.back() + floats);
  }
}

bool PayloadPlan::has_feedback() const { return HasFeedback(codec_); }

size_t PayloadPlan::PayloadBytes(ShardId shard) const {
  return (offsets_[shard.value() + 1] - offsets_[shard.value()]) * sizeof(float);
}

}  // namespace pando
