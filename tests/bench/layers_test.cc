// The counts of layers by `pando bench kernels`.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "bench/cpp/kernels/fma_peak.h"
#include "bench/cpp/kernels/layer_timer.h"

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
  // No layer uses the gradient of the input.
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

TEST_CASE("convolutions and linear layers are products, other layers are not") {
  const Result<LayerTimer> timer = LayerTimer::Create("mnist-cnn", 2);
  REQUIRE(timer.ok());
  for (const LayerWork& work : timer->work()) {
    CAPTURE(work.names);
    const MatrixProduct& p = work.product;
    CHECK((p.count > 0) == (work.kind.starts_with("Conv2d") || work.kind == "Linear"));
    if (p.count == 0) continue;
    // The product is all of the layer's work but its bias and what follows it.
    const double flops = 2.0 * static_cast<double>(p.rows * p.inner * p.columns * p.count);
    CHECK(flops <= work.forward_flops);
    CHECK(flops > 0.9 * work.forward_flops);
    CHECK(EigenSeconds(p) > 0.0);
  }
}

}  // namespace
}  // namespace pando::bench
