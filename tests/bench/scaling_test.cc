// What scaling makes of numbers of workers and of samples.
#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "bench/scaling/scaling.h"
#include "bench/training/training_points.h"

namespace pando::bench {
namespace {

ScalingOptions OneModel() {
  ScalingOptions options;
  options.workloads = {{.model = "mnist-cnn", .data_set = "mnist", .worker_batch = 128}};
  return options;
}

TEST_CASE("weak: a batch for each worker; strong: one that they share") {
  const std::vector<ScalingPoint> points = ScalingPoints(OneModel(), 2);
  REQUIRE(points.size() == 2 * 2 * 3);  // modes, strategies, workers
  std::set<std::string> names;
  for (const ScalingPoint& point : points) {
    CAPTURE(point.point.name);
    CHECK(names.insert(point.point.name).second);
    const uint32_t workers = point.plan.workers;
    CHECK(point.plan.global_batch == (point.mode == kWeak ? 128 * workers : 128));
    CHECK((point.first == point.point.name) == (workers == 1));
    const uint32_t processes = workers + (point.plan.strategy == "ps" ? 1 : 0);
    CHECK(point.point.is_oversubscribed == (processes > 2));
  }
}

TEST_CASE("efficiency is of a worker, against the fewest workers of the same curve and round") {
  ScalingOptions options = OneModel();
  options.modes = {kWeak};
  options.workers = {2, 4};
  const std::vector<ScalingPoint> asked = ScalingPoints(options, 8);
  REQUIRE(asked.size() == 4);
  const std::vector<std::vector<double>> samples{
      {100, 200}, {160, 400}, {1000, 1000}, {1000, 3000}};
  std::vector<Point> points;
  for (size_t i = 0; i < asked.size(); ++i) {
    points.push_back(asked[i].point);
    for (const double sample : samples[i]) points.back().Add(kImagesPerS, "1/s", sample);
  }
  AddEfficiency(asked, &points);
  CHECK(points[0].SamplesOf(kEfficiency) == std::vector<double>{1.0, 1.0});
  CHECK(points[1].SamplesOf(kEfficiency) == std::vector<double>{0.8, 1.0});
  CHECK(points[3].SamplesOf(kEfficiency) == std::vector<double>{0.5, 1.5});
  ResultSet set = NewResultSet("scaling", "t", {});
  set.points = points;
  AddScalingSummaries(asked, &set);
  REQUIRE(set.tables.size() == 1);
  REQUIRE(set.tables[0].rows.size() == 4);
  for (const auto& row : set.tables[0].rows) CHECK(row.size() == set.tables[0].header.size());
  CHECK(set.tables[0].rows[1][6] == "0.90");
  REQUIRE(set.plots.size() == 1);
  REQUIRE(set.plots[0].series.size() == 2);
  CHECK(set.plots[0].series[0].points ==
        std::vector<std::pair<double, double>>{{2, 1.0}, {4, 0.9}});
}

}  // namespace
}  // namespace pando::bench
