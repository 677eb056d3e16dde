#include "plan/shard_plan.h"

#include <algorithm>

#include "common/check.h"

namespace pando {

namespace {

constexpr size_t kBytesMin = 4 << 10;
constexpr size_t kBytesMax = 4 << 20;

}  // namespace

size_t ShardPlan::TargetBytes(size_t model_bytes) {
  return std::clamp<size_t>(model_bytes / 64, kBytesMin, kBytesMax);
}

ShardPlan::ShardPlan(const TensorLayout& layout, const Cut& cut) {
  constexpr size_t kPiece = TensorLayout::kPieceFloats;
  constexpr size_t kPlaceShare = 32;
  constexpr size_t kShardsOfServer = 8;
  const size_t model_bytes = layout.float_count() * sizeof(float);
  const bool grows = cut.target_bytes == 0 && cut.servers_max > kFewServers;
  const size_t fixed = cut.target_bytes > 0 ? cut.target_bytes : TargetBytes(model_bytes);
  const size_t largest =
      std::clamp(model_bytes / (kShardsOfServer * cut.servers_max), kBytesMin, kBytesMax);
  size_t open = 0;  // the floats below it are in a shard
  const auto target = [&] {
    const size_t place = open * sizeof(float);
    return (grows ? std::clamp(place / kPlaceShare, kBytesMin, largest) : fixed) / sizeof(float);
  };
  const auto close_at = [&](size_t end) {
    if (end > open) ranges_.push_back({open, end});
    open = end;
  };
  for (size_t i = 0; i < layout.tensor_count(); ++i) {
    const size_t first = layout.offset(i);
    const size_t last = layout.offset(i + 1);
    if (last - open >= 2 * target())
      close_at(first);  // the small tensors before a large one share a shard
    size_t parts = (last - open) / target();
    for (; parts > 0; parts = grows ? (last - open) / target() : parts - 1) {
      const size_t part = (last - open) / parts;
      const size_t pieces = std::max<size_t>(1, (part + kPiece / 2) / kPiece);
      close_at(parts == 1 ? last : std::min(open + pieces * kPiece, last));
    }
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
