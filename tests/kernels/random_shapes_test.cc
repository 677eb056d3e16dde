// Operations of random shapes on a GPU, in each type of elements, beside the CPU's. The GPU's
// arrays have no slack, and parameters begin at any float, so a kernel that accesses more than its
// arrays, or more at once than their addresses allow, fails.
#include "tests/kernels/bench.h"

namespace pando {
namespace {

constexpr uint32_t kShapes = 12;

// Fused additions and another order of sums. Measured: 7.2e-7 on the host, the same as PTX.
constexpr double kFloatTolerance = 1e-5;

class RandomShapes {
 public:
  explicit RandomShapes(uint32_t seed) : generator_(seed) {}
  uint32_t Between(uint32_t first, uint32_t last) {
    return first + static_cast<uint32_t>(generator_() % (last - first + 1));
  }
  bool Coin() { return Between(0, 1) == 1; }
  // Half of them are multiples of the widest pack.
  uint32_t Channels() { return Coin() ? 8 * Between(1, 5) : Between(1, 37); }
  SampleShape Shape() { return {Between(3, 9), Between(3, 9), Channels()}; }

 private:
  std::mt19937 generator_;
};

void CheckResults(const Results& got, const Results& expected, double tolerance) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    const std::vector<float> values(got[i].begin(), got[i].end());
    CHECK(RelativeError(values.data(), expected[i]) < tolerance);
  }
}

// f(bench, shapes) draws the same from its shapes each time.
template <class F>
void CheckShapes(const F& f) {
  for (ElementType element :
       {ElementType::kFloat32, ElementType::kBfloat16, ElementType::kFloat16}) {
    CAPTURE(static_cast<int>(element));
    Result<OpenedGpu> gpu = OpenCuda({.element = element});
    REQUIRE(gpu.ok());
    for (uint32_t seed = 1; seed <= kShapes; ++seed) {
      CAPTURE(seed);
      Bench cpu(Device{}), bench(gpu->device());
      RandomShapes shapes(seed), again(seed);
      const Results expected = f(cpu, shapes);
      CheckResults(f(bench, again), expected,
                   element == ElementType::kFloat32 ? kFloatTolerance : Tolerance(element));
    }
  }
}

TEST_CASE("max pools of random shapes are the CPU's") {
  CheckShapes([](Bench& b, RandomShapes& shapes) {
    const uint32_t samples = shapes.Between(1, 3), window = shapes.Between(1, 3);
    const Pool2dSpec spec{shapes.Shape(), window, shapes.Between(1, 2),
                          shapes.Between(0, window / 2)};
    const size_t in = spec.input.size() * samples, out = spec.output().size() * samples;
    void *x = b.Elements(ExactValues(in, 1)), *dy = b.Elements(ExactValues(out, 2));
    void *y = b.Elements(out), *dx = b.Elements(in);
    auto* argmax = b.Numbers<int32_t>(out);
    MaxPoolForward(b.device(), spec, samples, x, y, argmax);
    MaxPoolBackward(b.device(), spec, samples, argmax, dy, dx);
    return Results{b.ReadElements(y, out), b.ReadElements(dx, in)};
  });
}

template <class Spec, class Forward, class Backward>
Results PoolResults(Bench& b, uint32_t samples, const Spec& spec, Forward forward,
                    Backward backward) {
  const size_t in = spec.input.size() * samples, out = spec.output().size() * samples;
  void *x = b.Elements(ExactValues(in, 1)), *dy = b.Elements(ExactValues(out, 2));
  void *y = b.Elements(out), *dx = b.Elements(in);
  forward(b.device(), spec, samples, x, y);
  backward(b.device(), spec, samples, dy, dx);
  return {b.ReadElements(y, out), b.ReadElements(dx, in)};
}

TEST_CASE("average pools of random shapes are the CPU's") {
  CheckShapes([](Bench& b, RandomShapes& shapes) {
    const uint32_t samples = shapes.Between(1, 3);
    const Pool2dSpec spec{shapes.Shape(), shapes.Between(1, 3), shapes.Between(1, 2), 0};
    return PoolResults(b, samples, spec, AveragePoolForward, AveragePoolBackward);
  });
}

TEST_CASE("adaptive pools of random shapes are the CPU's") {
  CheckShapes([](Bench& b, RandomShapes& shapes) {
    const uint32_t samples = shapes.Between(1, 3);
    const AdaptivePool2dSpec spec{shapes.Shape(), shapes.Between(1, 3), shapes.Between(1, 3)};
    return PoolResults(b, samples, spec, AdaptiveAveragePoolForward, AdaptiveAveragePoolBackward);
  });
}

TEST_CASE("activations and additions of any number of elements are the CPU's") {
  CheckShapes([](Bench& b, RandomShapes& shapes) {
    const size_t count = shapes.Between(1, 700);
    const Activation activation = shapes.Coin() ? Activation::kRelu : Activation::kRelu6;
    void *x = b.Elements(ExactValues(count, 1)), *dy = b.Elements(ExactValues(count, 2));
    void *y = b.Elements(count), *dx = b.Elements(count), *sum = b.Elements(count);
    ActivationForward(b.device(), count, x, activation, y);
    ActivationBackward(b.device(), count, y, activation, dy, dx);
    AddForward(b.device(), count, x, dy, activation, sum);
    AddInPlace(b.device(), count, x, dy);
    return Results{b.ReadElements(y, count), b.ReadElements(dx, count), b.ReadElements(sum, count),
                   b.ReadElements(dy, count)};
  });
}

TEST_CASE("floats are scaled wherever they begin, as on the CPU") {
  CheckShapes([](Bench& b, RandomShapes& shapes) {
    const size_t count = shapes.Between(1, 700);
    const float* x = b.Parameters(ExactValues(count, 1));
    float *y = b.Parameters(count), *z = b.Parameters(ExactValues(count, 2));
    ScaleFloats(b.device(), count, x, 0.5f, y);
    ScaleFloatsInPlace(b.device(), count, b.Floats({0.25}), z);
    return Results{b.ReadFloats(y, count), b.ReadFloats(z, count)};
  });
}

TEST_CASE("dropout's factors reach elements and channels as on the CPU") {
  CheckShapes([](Bench& b, RandomShapes& shapes) {
    const uint32_t samples = shapes.Between(1, 3);
    const SampleShape shape = shapes.Shape();
    const size_t count = shape.size() * samples;
    void *x = b.Elements(ExactValues(count, 1)), *y = b.Elements(count), *z = b.Elements(count);
    Multiply(b.device(), count, x, b.Floats(ExactValues(count, 2)), y);
    MultiplyChannels(b.device(), samples, shape, x,
                     b.Floats(ExactValues(size_t{samples} * shape.channels, 3)), z);
    return Results{b.ReadElements(y, count), b.ReadElements(z, count)};
  });
}

TEST_CASE("samples of random shapes are transposed as on the CPU") {
  CheckShapes([](Bench& b, RandomShapes& shapes) {
    const uint32_t samples = shapes.Between(1, 3), rows = shapes.Between(1, 70),
                   columns = shapes.Between(1, 70);
    const size_t count = size_t{samples} * rows * columns;
    void *x = b.Elements(ExactValues(count, 1)), *y = b.Elements(count);
    TransposeSamples(b.device(), samples, rows, columns, x, y);
    return Results{b.ReadElements(y, count)};
  });
}

TEST_CASE("batch norms of random shapes with parameters at any float are the CPU's") {
  CheckShapes([](Bench& b, RandomShapes& shapes) {
    const uint32_t samples = shapes.Between(1, 3);
    const BatchNormSpec spec{.shape = shapes.Shape(), .has_residual = shapes.Coin()};
    const uint32_t channels = spec.shape.channels;
    const size_t count = spec.shape.size() * samples;
    void *x = b.Elements(ExactValues(count, 1)), *dy = b.Elements(ExactValues(count, 2));
    void *y = b.Elements(count), *dx = b.Elements(count), *inferred = b.Elements(count);
    const void* residual = spec.has_residual ? b.Elements(ExactValues(count, 3)) : nullptr;
    void* dresidual = spec.has_residual ? b.Elements(count) : nullptr;
    const float* weight = b.Parameters(ExactValues(channels, 4));
    const float* bias = b.Parameters(ExactValues(channels, 5));
    float *mean = b.Parameters(channels), *inverse_std = b.Parameters(channels);
    float *variance = b.Parameters(channels), *dweight = b.Parameters(channels);
    float* dbias = b.Parameters(channels);
    const auto scratch = b.Scratch(BatchNormScratchBytes(b.device(), spec));
    BatchNormForward(b.device(), spec,
                     {samples, x, weight, bias, residual, y, mean, inverse_std, variance}, scratch);
    BatchNormInference(b.device(), spec,
                       {samples, x, weight, bias, mean, variance, residual, inferred}, scratch);
    BatchNormBackward(
        b.device(), spec,
        {samples, x, weight, bias, mean, inverse_std, y, dy, dx, dresidual, dweight, dbias},
        scratch);
    Results results{b.ReadElements(y, count), b.ReadElements(inferred, count),
                    b.ReadElements(dx, count), b.ReadFloats(dweight, channels),
                    b.ReadFloats(dbias, channels)};
    if (spec.has_residual) results.push_back(b.ReadElements(dresidual, count));
    return results;
  });
}

TEST_CASE("group norms of random shapes with parameters at any float are the CPU's") {
  CheckShapes([](Bench& b, RandomShapes& shapes) {
    const uint32_t samples = shapes.Between(1, 3), groups = shapes.Between(1, 4);
    SampleShape shape = shapes.Shape();
    shape.channels *= groups;
    const GroupNormSpec spec{.shape = shape, .groups = groups};
    const size_t count = shape.size() * samples, rows = size_t{samples} * groups;
    void *x = b.Elements(ExactValues(count, 1)), *dy = b.Elements(ExactValues(count, 2));
    void *y = b.Elements(count), *dx = b.Elements(count);
    const float* weight = b.Parameters(ExactValues(shape.channels, 3));
    const float* bias = b.Parameters(ExactValues(shape.channels, 4));
    float *mean = b.Numbers<float>(rows), *inverse_std = b.Numbers<float>(rows);
    float *dweight = b.Parameters(shape.channels), *dbias = b.Parameters(shape.channels);
    const auto scratch = b.Scratch(GroupNormScratchBytes(b.device(), spec, samples));
    GroupNormForward(b.device(), spec, {samples, x, weight, bias, y, mean, inverse_std}, scratch);
    GroupNormBackward(b.device(), spec,
                      {samples, x, weight, mean, inverse_std, dy, dx, dweight, dbias}, scratch);
    return Results{b.ReadElements(y, count), b.ReadElements(dx, count),
                   b.ReadFloats(dweight, shape.channels), b.ReadFloats(dbias, shape.channels)};
  });
}

Conv2dSpec DrawConvolution(RandomShapes& shapes) {
  Conv2dSpec spec{.input = shapes.Shape(), .out_channels = shapes.Channels()};
  spec.kernel = shapes.Between(1, 3);
  spec.stride = shapes.Between(1, 2);
  spec.padding = shapes.Between(0, spec.kernel / 2);
  spec.max_pool = shapes.Coin() && spec.conv_output().height > 1 && spec.conv_output().width > 1;
  spec.relu = shapes.Coin();
  spec.has_channel_scale = shapes.Coin();
  if (shapes.Coin()) spec.groups = spec.out_channels = spec.input.channels;
  return spec;
}

// The gradients do not depend on rounding: forward's results are given.
TEST_CASE("convolutions of random shapes with parameters at any float are the CPU's") {
  CheckShapes([](Bench& b, RandomShapes& shapes) {
    const uint32_t samples = shapes.Between(1, 3);
    const Conv2dSpec spec = DrawConvolution(shapes);
    const size_t in = spec.input.size() * samples, out = spec.output().size() * samples;
    const size_t weights = spec.weight_size(), channels = spec.out_channels;
    Doubles factors = ExactValues(channels * samples, 1);
    for (double& factor : factors) factor = std::abs(factor);
    std::vector<int32_t> chosen(out);
    for (size_t i = 0; i < out; ++i) chosen[i] = static_cast<int32_t>(i * 7 % 4);
    void *x = b.Elements(ExactValues(in, 2)), *y = b.Elements(out), *dx = b.Elements(in);
    const float* weight = b.Parameters(ExactValues(weights, 3));
    const float* bias = b.Parameters(ExactValues(channels, 4));
    const float* scale = spec.has_channel_scale ? b.Floats(factors) : nullptr;
    float *dweight = b.Parameters(weights), *dbias = b.Parameters(channels);
    const auto scratch = b.Scratch(Conv2dScratchBytes(b.device(), spec, samples));
    Conv2dForward(b.device(), spec, {samples, x, weight, bias, scale, y, b.Numbers<int32_t>(out)},
                  scratch);
    Conv2dBackward(b.device(), spec,
                   {samples, x, weight, scale, b.Elements(ExactValues(out, 5)), b.Numbers(chosen),
                    b.Elements(ExactValues(out, 6)), dx, dweight, dbias},
                   scratch);
    return Results{b.ReadElements(y, out), b.ReadElements(dx, in), b.ReadFloats(dweight, weights),
                   b.ReadFloats(dbias, channels)};
  });
}

TEST_CASE("linear layers of random shapes with parameters at any float are the CPU's") {
  CheckShapes([](Bench& b, RandomShapes& shapes) {
    const uint32_t samples = shapes.Between(1, 9);
    const LinearSpec spec{shapes.Between(1, 40), shapes.Between(1, 40)};
    const size_t in = size_t{samples} * spec.in_features, out = size_t{samples} * spec.out_features;
    const size_t weights = size_t{spec.in_features} * spec.out_features;
    void *x = b.Elements(ExactValues(in, 1)), *dy = b.Elements(ExactValues(out, 2));
    void *y = b.Elements(out), *dx = b.Elements(in);
    const float* weight = b.Parameters(ExactValues(weights, 3));
    const float* bias = b.Parameters(ExactValues(spec.out_features, 4));
    float *dweight = b.Parameters(weights), *dbias = b.Parameters(spec.out_features);
    const auto scratch = b.Scratch(LinearScratchBytes(b.device(), spec, samples));
    LinearForward(b.device(), spec, {samples, x, weight, bias, y}, scratch);
    LinearBackward(b.device(), spec, {samples, x, weight, y, dy, dx, dweight, dbias}, scratch);
    return Results{b.ReadElements(y, out), b.ReadElements(dx, in), b.ReadFloats(dweight, weights),
                   b.ReadFloats(dbias, spec.out_features)};
  });
}

}  // namespace
}  // namespace pando
