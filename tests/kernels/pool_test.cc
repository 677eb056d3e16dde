#include "tests/kernels/support.h"

namespace pando {
namespace {

constexpr double kTol = 1e-6;  // sums of up to 25 terms in fp32, measured 2.1e-7

std::vector<Pool2dSpec> Cases() {
  return {{{1, 1, 1}, 1, 1},  {{2, 2, 1}, 2, 2},  {{24, 24, 10}, 2, 2}, {{7, 5, 3}, 2, 2},
          {{9, 9, 17}, 3, 2}, {{8, 6, 16}, 3, 3}, {{5, 5, 2}, 5, 1}};
}

// The windows' elements reduced to one by `reduce`, as the definition says.
template <class F>
Doubles Pooled(const Pool2dSpec& spec, size_t sample_count, const Doubles& x, F&& reduce) {
  const SampleShape out = spec.output();
  Doubles y;
  for (size_t i = 0; i < sample_count * out.size(); ++i) {
    const size_t c = i % out.channels, left = i / out.channels % out.width * spec.stride;
    const size_t top = i / out.channels / out.width % out.height * spec.stride;
    Doubles window;
    for (size_t wy = top; wy < top + spec.window; ++wy) {
      for (size_t wx = left; wx < left + spec.window; ++wx) {
        const size_t row = i / out.size() * spec.input.height + wy;
        window.push_back(x[(row * spec.input.width + wx) * spec.input.channels + c]);
      }
    }
    y.push_back(reduce(window));
  }
  return y;
}

TEST_CASE("max pool and its gradient follow the definition") {
  for (const Pool2dSpec& spec : Cases()) {
    for (uint32_t n : {1u, 3u}) {
      Doubles x = RandomDoubles(n * spec.input.size(), 5);
      const Doubles dy = RandomDoubles(n * spec.output().size(), 6);
      auto forward = [&] {
        return Pooled(spec, n, x,
                      [](const Doubles& w) { return *std::max_element(w.begin(), w.end()); });
      };
      FloatBuffer in = ToFloats(x), grad = ToFloats(dy), y = Poisoned(dy.size()),
                  dx = Poisoned(x.size());
      std::vector<int32_t> argmax(dy.size(), -1);
      MaxPoolForward(kCpu, spec, n, in.data(), y.data(), argmax.data());
      MaxPoolBackward(kCpu, spec, n, argmax.data(), grad.data(), dx.data());
      CHECK(RelativeError(y.data(), forward()) == 0.0);
      CHECK(FiniteDifferenceError(
                x, [&] { return DotProduct(forward(), dy); }, dx.data()) < kTol);
    }
  }
}

TEST_CASE("average pool and its gradient follow the definition") {
  for (const Pool2dSpec& spec : Cases()) {
    Doubles x = RandomDoubles(2 * spec.input.size(), 5);
    const Doubles dy = RandomDoubles(2 * spec.output().size(), 6);
    auto forward = [&] {
      return Pooled(spec, 2, x, [](const Doubles& window) {
        double sum = 0;
        for (double v : window) sum += v;
        return sum / static_cast<double>(window.size());
      });
    };
    FloatBuffer in = ToFloats(x), grad = ToFloats(dy), y = Poisoned(dy.size()),
                dx = Poisoned(x.size());
    AveragePoolForward(kCpu, spec, 2, in.data(), y.data());
    AveragePoolBackward(kCpu, spec, 2, grad.data(), dx.data());
    CHECK(RelativeError(y.data(), forward()) < kTol);
    CHECK(FiniteDifferenceError(
              x, [&] { return DotProduct(forward(), dy); }, dx.data()) < kTol);
  }
}

TEST_CASE("of equal elements the first is the largest, as in PyTorch") {
  const Pool2dSpec spec{{2, 2, 1}, 2, 2};
  const float x[] = {1, 1, 1, 1};
  float y = 0;
  int32_t argmax = -1;
  MaxPoolForward(kCpu, spec, 1, x, &y, &argmax);
  CHECK(argmax == 0);
}

}  // namespace
}  // namespace pando
