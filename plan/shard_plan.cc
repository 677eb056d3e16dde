#include "plan/shard_plan.h"

#include <algorithm>

#include "common/check.h"

namespace pando {

size_t ShardPlan::TargetBytes(size_t model_bytes) {
  return std::clamp<size_t>(model_bytes / 64, 4 << 10, 4 << 20);
}

ShardPlan::ShardPlan(const TensorLayout& layout, size_t target_bytes) {
  const size_t target = target_bytes / sizeof(float);
  size_t open = 0;  // the floats below it are in a shard
  auto close_at = [&](size_t end) {
    if (end > open) ranges_.push_back({open, end});
    open = end;
  };
  for (size_t i = 0; i < layout.tensor_count(); ++i) {
    const size_t first = layout.offset(i);
    const size_t last = layout.offset(i + 1);
    if (last - open >= 2 * target)
      close_at(first);  // the small tensors before a large one share a shard
    const size_t pieces = std::max<size_t>(1, (last - open) / target);
    const size_t piece = TensorLayout::Padded((last - open + pieces - 1) / pieces);
    while (last - open >= target) close_at(std::min(open + piece, last));
  }
  close_at(layout.float_count());
}

ShardPlan::Run ShardPlan::Covering(size_t first_float, size_t last_float) const {
  PANDO_CHECK(first_float < last_float && last_float <= ranges_.back().last);
  auto ends_after = [](const ShardRange& range, size_t x) { return range.last <= x; };
  auto begin = std::lower_bound(ranges_.begin(), ranges_.end(), first_float, ends_after);
  auto end = std::lower_bound(begin, ranges_.end(), last_float - 1, ends_after);
  return {static_cast<uint32_t>(begin - ranges_.begin()),
          static_cast<uint32_t>(end - ranges_.begin() + 1)};
}

}  // namespace pando
