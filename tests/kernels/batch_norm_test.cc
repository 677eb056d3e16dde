#include "tests/kernels/support.h"

namespace pando {
namespace {

constexpr double kBatchNormForwardTol = 2e-6;  // a few roundings of fp32, measured below 5e-7
constexpr double kBatchNormBackwardTol =
    1e-5;  // and sums over samples and pixels, measured below 2e-6

struct BatchNormCase {
  BatchNormSpec spec;
  uint32_t sample_count;
};

std::vector<BatchNormCase> BatchNormCases() {
  std::vector<BatchNormCase> cases;
  for (Activation activation : {Activation::kNone, Activation::kRelu, Activation::kRelu6}) {
    for (bool has_residual : {false, true}) {
      auto add = [&](SampleShape shape, uint32_t sample_count) {
        cases.push_back({{shape, 1e-5f, activation, has_residual}, sample_count});
      };
      add({1, 1, 1}, 2);   // the fewest with a variance
      add({3, 5, 7}, 3);   // odd everything
      add({4, 4, 16}, 2);  // one vector
      add({9, 8, 33}, 2);  // one channel past a vector, a block and a part
      add({1, 1, 80}, 5);  // a table's columns
    }
  }
  return cases;
}

// The definition, in double precision.
struct BatchNormReference {
  explicit BatchNormReference(const BatchNormCase& c)
      : spec(c.spec),
        sample_count(c.sample_count),
        channels(spec.shape.channels),
        pixels(sample_count * spec.shape.size() / channels),
        x(RandomDoubles(pixels * channels, 1)),
        weight(RandomDoubles(channels, 2)),
        bias(RandomDoubles(channels, 3)),
        residual(spec.has_residual ? RandomDoubles(pixels * channels, 4) : Doubles{}),
        dy(RandomDoubles(pixels * channels, 5)) {
    for (double& w : weight) w = 4 * w + 0.25;  // so that some results pass 6
  }

  double Mean(size_t c) const {
    double sum = 0;
    for (size_t p = 0; p < pixels; ++p) sum += x[p * channels + c];
    return sum / static_cast<double>(pixels);
  }
  double SquaredDeviations(size_t c) const {
    double sum = 0;
    for (size_t p = 0; p < pixels; ++p) sum += std::pow(x[p * channels + c] - Mean(c), 2);
    return sum;
  }
  Doubles Means() const {
    Doubles means;
    for (size_t c = 0; c < channels; ++c) means.push_back(Mean(c));
    return means;
  }
  Doubles Variances(size_t divisor) const {
    Doubles variances;
    for (size_t c = 0; c < channels; ++c) {
      variances.push_back(SquaredDeviations(c) / static_cast<double>(divisor));
    }
    return variances;
  }
  Doubles InverseStds() const {
    Doubles stds = Variances(pixels);
    for (double& v : stds) v = 1 / std::sqrt(v + static_cast<double>(spec.eps));
    return stds;
  }
  Doubles Forward() const { return Forward(Means(), InverseStds()); }
  Doubles Forward(const Doubles& mean, const Doubles& inverse_std) const {
    Doubles y;
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t c = i % channels;
      double value = (x[i] - mean[c]) * inverse_std[c] * weight[c] + bias[c];
      if (!residual.empty()) value += residual[i];
      if (spec.activation != Activation::kNone) value = std::max(value, 0.0);
      if (spec.activation == Activation::kRelu6) value = std::min(value, 6.0);
      y.push_back(value);
    }
    return y;
  }

  BatchNormSpec spec;
  uint32_t sample_count;
  size_t channels, pixels;
  Doubles x, weight, bias, residual, dy;
};

struct ComputedBatchNorm {
  explicit ComputedBatchNorm(const BatchNormReference& r, int scratch_fill = 0xff)
      : x(ToFloats(r.x)),
        weight(ToFloats(r.weight)),
        bias(ToFloats(r.bias)),
        residual(ToFloats(r.residual)),
        dy(ToFloats(r.dy)),
        y(Poisoned(r.x.size())),
        mean(Poisoned(r.channels)),
        inverse_std(Poisoned(r.channels)),
        variance(Poisoned(r.channels)),
        dx(Poisoned(r.x.size())),
        dresidual(Poisoned(r.x.size())),
        dweight(Poisoned(r.channels)),
        dbias(Poisoned(r.channels)),
        scratch(BatchNormScratchBytes(TestDevice(), r.spec) / sizeof(float)) {
    std::memset(scratch.data(), scratch_fill, scratch.size() * sizeof(float));
    BatchNormForward(TestDevice(), r.spec,
                     {.sample_count = r.sample_count,
                      .x = x.data(),
                      .weight = weight.data(),
                      .bias = bias.data(),
                      .residual = r.residual.empty() ? nullptr : residual.data(),
                      .y = y.data(),
                      .mean = mean.data(),
                      .inverse_std = inverse_std.data(),
                      .variance = variance.data()},
                     bytes());
    std::memset(scratch.data(), scratch_fill, scratch.size() * sizeof(float));
    BatchNormBackward(TestDevice(), r.spec, Backward(r), bytes());
  }
  BatchNormBackwardArgs Backward(const BatchNormReference& r) {
    return {.sample_count = r.sample_count,
            .x = x.data(),
            .weight = weight.data(),
            .bias = bias.data(),
            .mean = mean.data(),
            .inverse_std = inverse_std.data(),
            .y = y.data(),
            .dy = dy.data(),
            .dx = dx.data(),
            .dresidual = r.residual.empty() ? nullptr : dresidual.data(),
            .dweight = dweight.data(),
            .dbias = dbias.data()};
  }
  std::span<std::byte> bytes() { return scratch.bytes(); }
  Floats x, weight, bias, residual, dy, y, mean, inverse_std, variance, dx, dresidual, dweight,
      dbias, scratch;
};

TEST_CASE("batch norm and its statistics follow the definition") {
  for (const BatchNormCase& c : BatchNormCases()) {
    CAPTURE(c.spec.shape.channels);
    const BatchNormReference r(c);
    const ComputedBatchNorm computed(r);
    CHECK(RelativeError(computed.y.data(), r.Forward()) < kBatchNormForwardTol);
    CHECK(RelativeError(computed.mean.data(), r.Means()) < kBatchNormForwardTol);
    CHECK(RelativeError(computed.inverse_std.data(), r.InverseStds()) < kBatchNormForwardTol);
    CHECK(RelativeError(computed.variance.data(), r.Variances(r.pixels - 1)) <
          kBatchNormForwardTol);
  }
}

TEST_CASE("batch norm's gradients equal finite differences") {
  for (const BatchNormCase& c : BatchNormCases()) {
    CAPTURE(c.spec.shape.channels);
    CAPTURE(static_cast<int>(c.spec.activation));
    BatchNormReference r(c);
    const ComputedBatchNorm computed(r);
    auto loss = [&] { return DotProduct(r.Forward(), r.dy); };
    if (r.pixels > 2)
      CHECK(FiniteDifferenceError(r.x, loss, computed.dx.data()) < kBatchNormBackwardTol);
    CHECK(FiniteDifferenceError(r.weight, loss, computed.dweight.data()) < kBatchNormBackwardTol);
    CHECK(FiniteDifferenceError(r.bias, loss, computed.dbias.data()) < kBatchNormBackwardTol);
    if (!c.spec.has_residual) continue;
    CHECK(FiniteDifferenceError(r.residual, loss, computed.dresidual.data()) <
          kBatchNormBackwardTol);
  }
}

TEST_CASE("batch norm does not depend on what was in its buffers and in its scratch") {
  for (const BatchNormCase& c : BatchNormCases()) {
    const BatchNormReference r(c);
    const ComputedBatchNorm a(r, 0xff), b(r, 0x3f);
    CHECK(SameBits(a.y.data(), b.y.data(), r.x.size()));
    CHECK(SameBits(a.dx.data(), b.dx.data(), r.x.size()));
    CHECK(SameBits(a.dweight.data(), b.dweight.data(), r.channels));
  }
}

TEST_CASE("batch norm may write its gradients over those it was given") {
  for (const BatchNormCase& c : BatchNormCases()) {
    const BatchNormReference r(c);
    ComputedBatchNorm apart(r), over(r);
    for (bool is_dx : {true, false}) {
      if (!is_dx && !c.spec.has_residual) continue;
      std::copy_n(ToFloats(r.dy).data(), r.dy.size(), over.dy.data());
      BatchNormBackwardArgs args = over.Backward(r);
      (is_dx ? args.dx : args.dresidual) = over.dy.data();
      BatchNormBackward(TestDevice(), r.spec, args, over.bytes());
      const Floats& dx = is_dx ? over.dy : over.dx;
      const Floats& dresidual = is_dx ? over.dresidual : over.dy;
      CHECK(SameBits(dx.data(), apart.dx.data(), r.dy.size()));
      if (c.spec.has_residual)
        CHECK(SameBits(dresidual.data(), apart.dresidual.data(), r.dy.size()));
    }
  }
}

TEST_CASE("batch norm may write its result over its input") {
  const BatchNormReference r(BatchNormCases()[1]);
  ComputedBatchNorm computed(r);
  BatchNormForward(TestDevice(), r.spec,
                   {.sample_count = r.sample_count,
                    .x = computed.x.data(),
                    .weight = computed.weight.data(),
                    .bias = computed.bias.data(),
                    .y = computed.x.data(),
                    .mean = computed.mean.data(),
                    .inverse_std = computed.inverse_std.data(),
                    .variance = computed.variance.data()},
                   computed.bytes());
  CHECK(SameBits(computed.x.data(), computed.y.data(), r.x.size()));
}

TEST_CASE("batch norm keeps its digits where the mean is large") {
  BatchNormReference r(BatchNormCases()[3]);
  for (double& v : r.x) v = static_cast<double>(static_cast<float>(v + 1000));
  const ComputedBatchNorm computed(r);
  CHECK(RelativeError(computed.mean.data(), r.Means()) < 1e-7);
  CHECK(RelativeError(computed.variance.data(), r.Variances(r.pixels - 1)) < kBatchNormForwardTol);
  // x · factor + offset, as PyTorch computes it: of a result near 1, 1000 · 2^-24 · weight is lost.
  CHECK(RelativeError(computed.y.data(), r.Forward()) < 1e-4);
}

TEST_CASE("inference takes the statistics that it is given") {
  for (const BatchNormCase& c : BatchNormCases()) {
    const BatchNormReference r(c);
    const Doubles mean = RandomDoubles(r.channels, 8);
    Doubles variance = RandomDoubles(r.channels, 9), inverse_std;
    for (double& v : variance) {
      v = v * v + 0.1;
      inverse_std.push_back(1 / std::sqrt(v + static_cast<double>(c.spec.eps)));
    }
    ComputedBatchNorm computed(r);
    Floats means = ToFloats(mean), variances = ToFloats(variance), y = Poisoned(r.x.size());
    BatchNormInference(TestDevice(), r.spec,
                       {.sample_count = r.sample_count,
                        .x = computed.x.data(),
                        .weight = computed.weight.data(),
                        .bias = computed.bias.data(),
                        .mean = means.data(),
                        .variance = variances.data(),
                        .residual = r.residual.empty() ? nullptr : computed.residual.data(),
                        .y = y.data()},
                       computed.bytes());
    CHECK(RelativeError(y.data(), r.Forward(mean, inverse_std)) < kBatchNormForwardTol);
  }
}

TEST_CASE("one value alone has no variance, and its result is the bias") {
  constexpr double kOneValueTol = 1e-4;  // fp32's rounding times 1 / sqrt(eps) = 316
  const BatchNormReference r({{{1, 1, 3}}, 1});
  const ComputedBatchNorm computed(r);
  for (size_t c = 0; c < 3; ++c) {
    CHECK(computed.variance.data()[c] == 0.0f);
    CHECK(std::abs(computed.y.data()[c] - r.bias[c]) < kOneValueTol);
    CHECK(std::abs(computed.dx.data()[c]) < 10 * kOneValueTol);
  }
}

}  // namespace
}  // namespace pando
