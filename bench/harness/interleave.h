// What is compared is measured in turns: every variant once a round, so that a machine that is
// slower for a while is slower for all of them.
#pragma once

#include <functional>
#include <vector>

#include "bench/harness/result.h"
#include "common/status.h"

namespace pando::bench {

struct Variant {
  Point point;  // named; without measurements
  // Measures once and adds a sample to each of the point's measurements.
  std::function<Status(Point* point)> measure;
};

// Told before each measurement, for a progress line: `done` of `all`.
using OnProgress = std::function<void(size_t done, size_t all, const Point& next)>;

// `rounds` rounds of all variants. Even rounds go the other way: nobody always comes after the same
// one. The first error ends it.
Result<std::vector<Point>> MeasureInTurns(std::vector<Variant> variants, uint32_t rounds,
                                          const OnProgress& on_progress);

}  // namespace pando::bench
