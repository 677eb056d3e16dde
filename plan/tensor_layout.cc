#include "plan/tensor_layout.h"

#include <algorithm>

#include "common/check.h"

namespace pando {
namespace {

size_t RoundUp(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

uint64_t TensorSpec::size() const {
  uint64_t n = 1;
  for (uint64_t d : shape) n *= d;
  return n;
}

TensorSpec MetricTensorSpec() {
  return {.name = kMetricTensorName, .shape = {kMetricSlotCount}, .kind = TensorKind::kMetric};
}

TensorLayout::TensorLayout(std::vector<TensorSpec> specs) : specs_(std::move(specs)) {
  for (const TensorSpec& spec : specs_) {
    offsets_.push_back(RoundUp(offsets_.back() + spec.size(), kAlignFloats));
  }
}

uint64_t TensorLayout::parameter_count() const {
  uint64_t n = 0;
  for (const TensorSpec& spec : specs_) n += spec.kind == TensorKind::kParameter ? spec.size() : 0;
  return n;
}

size_t TensorLayout::Find(const std::string& name) const {
  auto it = std::find_if(specs_.begin(), specs_.end(),
                         [&](const TensorSpec& spec) { return spec.name == name; });
  return static_cast<size_t>(it - specs_.begin());
}

size_t ShardPlan::TargetBytes(size_t model_bytes) {
  return std::clamp<size_t>(model_bytes / 64, 4 << 10, 4 << 20);
}

ShardPlan::ShardPlan(const TensorLayout& layout, size_t target_bytes) {
  const size_t target = target_bytes / sizeof(float);
  size_t open = 0;  // floats below it are in a shard
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
    const size_t piece = RoundUp((last - open + pieces - 1) / pieces, TensorLayout::kAlignFloats);
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
