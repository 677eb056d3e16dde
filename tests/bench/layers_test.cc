// What `pando bench kernels` counts of layers, and what it makes of their times.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "bench/kernels/fma_peak.h"
#include "bench/kernels/layer_bench.h"

namespace pando::bench {
namespace {

TEST_CASE("a layer's work is what its shapes say") {
  const Result<LayerTimer> timer = LayerTimer::Create("mlp", 3);
  REQUIRE(timer.ok());
  // 784 to 128, ReLU, 128 to 10.
  const LayerWork* first = nullptr;
  const LayerWork* last = nullptr;
  for (const LayerWork& work : timer->work()) {
    if (work.kind != "Linear") continue;
    if (first == nullptr) first = &work;
    last = &work;
  }
  REQUIRE(first != nullptr);
  REQUIRE(last != first);
  CHECK(last->forward_flops == 3 * (2 * 128 * 10 + 10));
  CHECK(last->forward_bytes == 4.0 * (3 * (128 + 10) + 128 * 10 + 10));
  // dy, x and dx; weights and bias, read and made.
  CHECK(last->backward_bytes == 4.0 * (3 * (10 + 128 + 128) + 2 * (128 * 10 + 10)));
  // Nobody wants the gradient of the input.
  CHECK(first->backward_bytes == 4.0 * (3 * (128 + 784) + 2 * (784 * 128 + 128)));
  CHECK(first->backward_flops < last->backward_flops * 784 * 128 / (128 * 10));
}

TEST_CASE("every layer of a pass has a time") {
  Result<LayerTimer> timer = LayerTimer::Create("mnist-cnn", 2);
  REQUIRE(timer.ok());
  const std::vector<LayerTime> times = timer->Pass();
  CHECK(times.size() == timer->work().size());
  for (const LayerTime& time : times) {
    CHECK(time.forward_s > 0.0);
    CHECK(time.backward_s > 0.0);
  }
}

TEST_CASE("a model that the zoo does not have is an error") {
  const Result<LayerTimer> timer = LayerTimer::Create("mnist-cn", 2);
  REQUIRE(!timer.ok());
  CHECK(timer.status().message().find("'mnist-cn'") != std::string::npos);
}

TEST_CASE("a core does some multiply-adds") { CHECK(MeasurePeak() > 1e8); }

TEST_CASE("shares are of the ceiling that bounds the layer") {
  ResultSet set = NewResultSet("kernels", "t", {});
  // 100 GFLOP/s and 10 GB/s: 10 operations a byte.
  for (const auto& [name, rate] : {std::pair{kPeakName, 100.0}, {kCopyName, 10.0}}) {
    set.points.push_back({.name = name});
    set.points.back().Add(kRate, "", rate);
  }
  const std::vector<ModelWork> models{{"m",
                                       {{.names = "conv1",
                                         .kind = "Conv2d 3x3",
                                         .forward_flops = 5e7,
                                         .backward_flops = 1e8,
                                         .forward_bytes = 1e6,
                                         .backward_bytes = 2e6},
                                        {.names = "conv2 relu2",
                                         .kind = "Conv2d 3x3",
                                         .forward_flops = 1e6,
                                         .backward_flops = 1e6,
                                         .forward_bytes = 2e6,
                                         .backward_bytes = 0}}}};
  for (const LayerWork& work : models[0].layers) {
    set.points.push_back({.name = LayerPointName("m", work)});
    set.points.back().Add(kForwardTime, "ms", 1.0);
    set.points.back().Add(kBackwardTime, "ms", 2.0);
  }
  AddLayerSummaries(models, &set);
  REQUIRE(set.tables.size() == 2);
  const auto& rows = set.tables[1].rows;
  REQUIRE(rows.size() == 2);
  CHECK(rows[0] == std::vector<std::string>{"conv1", "Conv2d 3x3", "1.000", "50.0", "1.00",
                                            "0.50 FMA", "2.000", "50.0", "1.00", "0.50 FMA"});
  CHECK(rows[1][5] == "0.20 memory");
  // 51 MFLOP and 3 MB in 2 ms.
  REQUIRE(set.tables[0].rows.size() == 1);
  CHECK(set.tables[0].rows[0][3] == "25.5");
  CHECK(set.tables[0].rows[0][5] == "0.26 FMA");
  REQUIRE(set.plots.size() == 1);
  REQUIRE(set.plots[0].series.size() == 2);
  CHECK(set.plots[0].series[0].name == "Conv2d 3x3, forward (FMA)");
  CHECK(set.plots[0].series[0].points[0].second == doctest::Approx(0.255));
  for (const Table& table : set.tables) {
    for (const auto& row : table.rows) CHECK(row.size() == table.header.size());
  }
}

}  // namespace
}  // namespace pando::bench
