#include "tests/kernels/support.h"

namespace pando {
namespace {

constexpr double kLinearForwardTol =
    3e-6;  // fp32, sums of up to 1025 terms, measured 1e-6 with gradients
constexpr double kLinearBackwardTol = 3e-6;  // the same

struct LinearReference {
  LinearReference(LinearSpec s, uint32_t n)
      : spec(s),
        sample_count(n),
        x(RandomDoubles(size_t{n} * s.in_features, 1)),
        weight(RandomDoubles(size_t{s.out_features} * s.in_features, 2)),
        bias(RandomDoubles(s.out_features, 3)),
        dy(RandomDoubles(size_t{n} * s.out_features, 4)) {}

  Doubles Forward() const {
    Doubles y;
    for (size_t s = 0; s < sample_count; ++s) {
      for (size_t o = 0; o < spec.out_features; ++o) {
        double sum = bias[o];
        for (size_t i = 0; i < spec.in_features; ++i) {
          sum += x[s * spec.in_features + i] * weight[o * spec.in_features + i];
        }
        y.push_back(spec.relu ? std::max(sum, 0.0) : sum);
      }
    }
    return y;
  }
  LinearSpec spec;
  uint32_t sample_count;
  Doubles x, weight, bias, dy;
};

std::vector<LinearReference> LinearCases() {
  std::vector<LinearReference> cases;
  for (uint32_t n : {1u, 2u, 15u, 16u, 17u, 64u}) {
    cases.emplace_back(LinearSpec{1, 1, false}, n);
    cases.emplace_back(LinearSpec{7, 3, true}, n);
    cases.emplace_back(LinearSpec{320, 50, true}, n);
    cases.emplace_back(LinearSpec{50, 10, false}, n);
  }
  cases.emplace_back(LinearSpec{500, 331, true}, 33);
  cases.emplace_back(LinearSpec{1025, 65, false}, 3);  // one past the blocks of depth
  return cases;
}

TEST_CASE("linear forward and gradients follow the definition on every shape") {
  for (LinearReference& r : LinearCases()) {
    CAPTURE(r.spec.in_features);
    CAPTURE(r.sample_count);
    Floats x = ToFloats(r.x), weight = ToFloats(r.weight), bias = ToFloats(r.bias);
    Floats dy = ToFloats(r.dy), y = Poisoned(r.dy.size()), dx = Poisoned(r.x.size());
    Floats dweight = Poisoned(r.weight.size()), dbias = Poisoned(r.bias.size());

    Floats scratch = Poisoned(LinearScratchBytes(TestDevice(), r.spec, r.sample_count) / 4);
    LinearForward(TestDevice(), r.spec,
                  {r.sample_count, x.data(), weight.data(), bias.data(), y.data()},
                  scratch.bytes());
    CHECK(RelativeError(y.data(), r.Forward()) < kLinearForwardTol);

    LinearBackward(TestDevice(), r.spec,
                   {r.sample_count, x.data(), weight.data(), y.data(), dy.data(), dx.data(),
                    dweight.data(), dbias.data()},
                   scratch.bytes());
    auto loss = [&] { return DotProduct(r.Forward(), r.dy); };
    CHECK(FiniteDifferenceError(r.x, loss, dx.data(), 20) < kLinearBackwardTol);
    CHECK(FiniteDifferenceError(r.weight, loss, dweight.data(), 20) < kLinearBackwardTol);
    CHECK(FiniteDifferenceError(r.bias, loss, dbias.data(), 20) < kLinearBackwardTol);
  }
}

TEST_CASE("linear results do not depend on where their arrays lie") {
  const LinearReference r(LinearSpec{320, 50, true}, 16);
  Floats x = ToFloats(r.x), bias = ToFloats(r.bias);
  Floats weight(r.weight.size() + 2 * kSlackElements);
  Floats first = Poisoned(r.dy.size()), other = Poisoned(r.dy.size());
  for (size_t shift : {0u, 1u, 8u}) {
    for (size_t i = 0; i < r.weight.size(); ++i) {
      weight.data()[shift + i] = static_cast<float>(r.weight[i]);
    }
    Floats& y = shift == 0 ? first : other;
    Floats scratch = Poisoned(LinearScratchBytes(TestDevice(), r.spec, r.sample_count) / 4);
    LinearForward(TestDevice(), r.spec,
                  {r.sample_count, x.data(), weight.data() + shift, bias.data(), y.data()},
                  scratch.bytes());
    CHECK(SameBits(first.data(), y.data(), r.dy.size()));
  }
}

}  // namespace
}  // namespace pando
