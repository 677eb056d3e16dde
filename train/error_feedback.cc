#include "train/error_feedback.h"

#include <algorithm>
#include <cmath>

#include "common/cpu/float_arrays.h"

namespace pando {

std::shared_ptr<ErrorFeedback::Lost> ErrorFeedback::Find(Step step, MicroBatch m) {
  std::lock_guard lock(mutex_);
  Entry& entry = lost_[m];
  if (entry.lost == nullptr) {
    entry = {std::make_shared<Lost>(plan_), step};
    std::erase_if(lost_, [&](const auto& other) { return NextStep(other.second.newest) < step; });
  }
  entry.newest = std::max(entry.newest, step);
  return entry.lost;
}

void ErrorFeedback::Encode(Step step, MicroBatch m, ShardId shard, std::span<const float> gradient,
                           std::span<std::byte> encoded) {
  const std::shared_ptr<Lost> lost = Find(step, m);
  std::lock_guard lock(lost->mutex);
  const ShardRange& range = plan_.shards.range(shard);
  const std::span<float> sum = lost->floats.span().subspan(range.first, range.size());
  std::optional<Step>& of_step = lost->of_step[shard.value()];
  if (!of_step || NextStep(*of_step) != step) std::ranges::fill(sum, 0.0f);
  of_step = step;
  ToArray(sum) += ToArray(gradient);
  const ShardCodec& codec = *plan_.pushes.codec(shard);
  codec.Encode(sum, encoded);
  lost->sent.resize(sum.size());
  codec.Decode(encoded, lost->sent);
  // An overflow is not carried over: with loss scaling its step is skipped.
  const auto carried = [](float left) { return std::isfinite(left) ? left : 0.0f; };
  ToArray(sum) = (ToArray(sum) - ToArray(std::span(lost->sent))).unaryExpr(carried);
}

size_t ErrorFeedback::held_count() {
  std::lock_guard lock(mutex_);
  return lost_.size();
}

void ErrorFeedback::Forget() {
  std::lock_guard lock(mutex_);
  lost_.clear();
}

}  // namespace pando
