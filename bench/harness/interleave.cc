#include "bench/harness/interleave.h"

#include <fmt/format.h>

namespace pando::bench {

Result<std::vector<Point>> MeasureInTurns(std::vector<Variant> variants, uint32_t rounds,
                                          const OnProgress& on_progress) {
  const size_t all = variants.size() * rounds;
  size_t done = 0;
  for (uint32_t round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < variants.size(); ++i) {
      Variant& variant = variants[round % 2 == 0 ? i : variants.size() - 1 - i];
      if (on_progress) on_progress(done++, all, variant.point);
      Status s = variant.measure(&variant.point);
      if (!s.ok()) return Status(s.code(), fmt::format("{}: {}", variant.point.name, s.message()));
    }
  }
  std::vector<Point> points;
  for (Variant& variant : variants) points.push_back(std::move(variant.point));
  return points;
}

}  // namespace pando::bench
