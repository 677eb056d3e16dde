#include "tests/kernels/support.h"

namespace pando {
namespace {

constexpr double kPoolTol = 1e-6;  // sums of up to 25 terms in fp32, measured 2.1e-7

std::vector<Pool2dSpec> PoolCases() {
  return {{{1, 1, 1}, 1, 1},    {{2, 2, 1}, 2, 2},    {{24, 24, 10}, 2, 2},
          {{7, 5, 3}, 2, 2},    {{9, 9, 17}, 3, 2},   {{8, 6, 16}, 3, 3},
          {{5, 5, 2}, 5, 1},    {{9, 8, 5}, 3, 2, 1},  // ResNet's
          {{1, 1, 3}, 2, 1, 1},  // one pixel in each window, three places of padding
          {{4, 7, 2}, 5, 3, 2}};
}

// The windows' elements reduced to one by `reduce`, as the definition says; padding is left out.
template <class F>
Doubles Pooled(const Pool2dSpec& spec, size_t sample_count, const Doubles& x, F&& reduce) {
  const SampleShape out = spec.output();
  Doubles y;
  for (size_t i = 0; i < sample_count * out.size(); ++i) {
    const size_t c = i % out.channels, left = i / out.channels % out.width * spec.stride;
    const size_t top = i / out.channels / out.width % out.height * spec.stride;
    Doubles window;
    for (size_t p = 0; p < size_t{spec.window} * spec.window; ++p) {
      const size_t wy = top + p / spec.window - spec.padding;  // wraps where outside
      const size_t wx = left + p % spec.window - spec.padding;
      if (wy < spec.input.height && wx < spec.input.width) {
        const size_t row = i / out.size() * spec.input.height + wy;
        window.push_back(x[(row * spec.input.width + wx) * spec.input.channels + c]);
      }
    }
    y.push_back(reduce(window));
  }
  return y;
}

TEST_CASE("max pool and its gradient follow the definition") {
  for (const Pool2dSpec& spec : PoolCases()) {
    for (uint32_t n : {1u, 3u}) {
      Doubles x = RandomDoubles(n * spec.input.size(), 5);
      const Doubles dy = RandomDoubles(n * spec.output().size(), 6);
      auto forward = [&] {
        return Pooled(spec, n, x,
                      [](const Doubles& w) { return *std::max_element(w.begin(), w.end()); });
      };
      Floats in = ToFloats(x), grad = ToFloats(dy), y = Poisoned(dy.size()),
             dx = Poisoned(x.size());
      Array<int32_t> argmax(dy.size());
      MaxPoolForward(TestDevice(), spec, n, in.data(), y.data(), argmax.data());
      MaxPoolBackward(TestDevice(), spec, n, argmax.data(), grad.data(), dx.data());
      CHECK(RelativeError(y.data(), forward()) == 0.0);
      CHECK(FiniteDifferenceError(
                x, [&] { return DotProduct(forward(), dy); }, dx.data()) < kPoolTol);
    }
  }
}

TEST_CASE("average pool and its gradient follow the definition") {
  for (const Pool2dSpec& spec : PoolCases()) {
    Doubles x = RandomDoubles(2 * spec.input.size(), 5);
    const Doubles dy = RandomDoubles(2 * spec.output().size(), 6);
    auto forward = [&] {
      return Pooled(spec, 2, x, [&](const Doubles& window) {
        double sum = 0;
        for (double v : window) sum += v;
        return sum / (spec.window * spec.window);  // PyTorch counts padding in
      });
    };
    Floats in = ToFloats(x), grad = ToFloats(dy), y = Poisoned(dy.size()), dx = Poisoned(x.size());
    AveragePoolForward(TestDevice(), spec, 2, in.data(), y.data());
    AveragePoolBackward(TestDevice(), spec, 2, grad.data(), dx.data());
    CHECK(RelativeError(y.data(), forward()) < kPoolTol);
    CHECK(FiniteDifferenceError(
              x, [&] { return DotProduct(forward(), dy); }, dx.data()) < kPoolTol);
  }
}

TEST_CASE("of windows of negative elements padding is not the largest") {
  Floats x = ToFloats({-1, -2, -3, -4}), y = Poisoned(4);
  Array<int32_t> argmax(4);
  MaxPoolForward(TestDevice(), {{2, 2, 1}, 3, 1, 1}, 1, x.data(), y.data(), argmax.data());
  for (int i = 0; i < 4; ++i) {
    CHECK(y.data()[i] == -1.0f);
    CHECK(argmax.data()[i] == 0);
  }
}

// PyTorch's windows, in its own words: start = floor(i · size / n), end = ceil((i + 1) · size / n).
Doubles AdaptivelyPooled(const AdaptivePool2dSpec& spec, size_t sample_count, const Doubles& x) {
  const SampleShape& in = spec.input;
  auto start = [](size_t i, double size, double n) {
    return static_cast<size_t>(std::floor(static_cast<double>(i) * size / n));
  };
  auto end = [](size_t i, double size, double n) {
    return static_cast<size_t>(std::ceil(static_cast<double>(i + 1) * size / n));
  };
  Doubles y;
  for (size_t i = 0; i < sample_count * spec.output().size(); ++i) {
    const size_t c = i % in.channels, ox = i / in.channels % spec.out_width;
    const size_t oy = i / in.channels / spec.out_width % spec.out_height;
    double sum = 0, count = 0;
    for (size_t iy = start(oy, in.height, spec.out_height);
         iy < end(oy, in.height, spec.out_height); ++iy) {
      for (size_t ix = start(ox, in.width, spec.out_width); ix < end(ox, in.width, spec.out_width);
           ++ix, ++count) {
        const size_t row = i / spec.output().size() * in.height + iy;
        sum += x[(row * in.width + ix) * in.channels + c];
      }
    }
    y.push_back(sum / count);
  }
  return y;
}

TEST_CASE("adaptive average pool and its gradient follow PyTorch's windows") {
  const AdaptivePool2dSpec cases[] = {{{7, 7, 5}, 7, 7},   {{8, 8, 17}, 1, 1}, {{1, 1, 3}, 7, 7},
                                      {{10, 13, 2}, 7, 7}, {{3, 5, 4}, 2, 4},  {{9, 1, 1}, 2, 1}};
  for (const AdaptivePool2dSpec& spec : cases) {
    Doubles x = RandomDoubles(2 * spec.input.size(), 5);
    const Doubles dy = RandomDoubles(2 * spec.output().size(), 6);
    Floats in = ToFloats(x), grad = ToFloats(dy), y = Poisoned(dy.size()), dx = Poisoned(x.size());
    AdaptiveAveragePoolForward(TestDevice(), spec, 2, in.data(), y.data());
    AdaptiveAveragePoolBackward(TestDevice(), spec, 2, grad.data(), dx.data());
    CHECK(RelativeError(y.data(), AdaptivelyPooled(spec, 2, x)) < kPoolTol);
    CHECK(FiniteDifferenceError(
              x, [&] { return DotProduct(AdaptivelyPooled(spec, 2, x), dy); }, dx.data()) <
          kPoolTol);
  }
}

TEST_CASE("an adaptive pool to the input's own size changes nothing") {
  const Doubles x = RandomDoubles(7 * 7 * 9, 5);
  Floats in = ToFloats(x), y = Poisoned(x.size());
  AdaptiveAveragePoolForward(TestDevice(), {{7, 7, 9}, 7, 7}, 1, in.data(), y.data());
  CHECK(SameBits(y.data(), in.data(), x.size()));
}

TEST_CASE("global average pool is the mean of each channel") {
  const SampleShape shape{3, 2, 2};
  Floats x = ToFloats({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}), y = Poisoned(2), dx = Poisoned(12);
  AdaptiveAveragePoolForward(TestDevice(), {.input = shape}, 1, x.data(), y.data());
  CHECK(y.data()[0] == doctest::Approx(5.0));
  CHECK(y.data()[1] == doctest::Approx(6.0));
  Floats dy = ToFloats({6, 12});
  AdaptiveAveragePoolBackward(TestDevice(), {.input = shape}, 1, dy.data(), dx.data());
  for (size_t i = 0; i < 12; ++i) CHECK(dx.data()[i] == doctest::Approx(i % 2 == 0 ? 1.0 : 2.0));
}

TEST_CASE("global average pool and its gradient are those of the adaptive pool's definition") {
  for (const SampleShape& shape : {SampleShape{1, 1, 1}, {7, 7, 33}, {3, 5, 16}, {8, 8, 17}}) {
    const AdaptivePool2dSpec spec{shape, 1, 1};
    Doubles x = RandomDoubles(3 * shape.size(), 5);
    const Doubles dy = RandomDoubles(3 * shape.channels, 6);
    Floats in = ToFloats(x), grad = ToFloats(dy), y = Poisoned(dy.size()), dx = Poisoned(x.size());
    AdaptiveAveragePoolForward(TestDevice(), {.input = shape}, 3, in.data(), y.data());
    AdaptiveAveragePoolBackward(TestDevice(), {.input = shape}, 3, grad.data(), dx.data());
    CHECK(RelativeError(y.data(), AdaptivelyPooled(spec, 3, x)) < kPoolTol);
    CHECK(FiniteDifferenceError(
              x, [&] { return DotProduct(AdaptivelyPooled(spec, 3, x), dy); }, dx.data()) <
          kPoolTol);
  }
}

TEST_CASE("of equal elements the first is the largest, as in PyTorch") {
  const Pool2dSpec spec{{2, 2, 1}, 2, 2};
  Floats x = ToFloats({1, 1, 1, 1}), y = Poisoned(1);
  Array<int32_t> argmax(1);
  argmax.data()[0] = -1;
  MaxPoolForward(TestDevice(), spec, 1, x.data(), y.data(), argmax.data());
  CHECK(argmax.data()[0] == 0);
}

}  // namespace
}  // namespace pando
