#include "tests/kernels/support.h"

namespace pando {
namespace {

constexpr double kConvForwardTol = 2e-6;   // fp32, sums of up to 800 terms, measured 7e-7
constexpr double kConvBackwardTol = 5e-6;  // fp32, sums over all pixels and samples, measured 7e-7

struct ConvCase {
  Conv2dSpec spec;
  uint32_t sample_count;
  bool has_dropout = false;
};

std::vector<ConvCase> ConvCases() {
  auto spec = [](uint32_t h, uint32_t w, uint32_t c, uint32_t out, uint32_t kernel,
                 uint32_t stride = 1, uint32_t padding = 0, bool pool = false, bool relu = false) {
    return Conv2dSpec{{h, w, c}, out, kernel, stride, padding, pool, relu};
  };
  auto grouped = [](uint32_t groups, Conv2dSpec whole) {
    whole.groups = groups;
    return whole;
  };
  return {
      {spec(1, 1, 1, 1, 1), 1},                               // the smallest there is
      {spec(5, 5, 1, 1, 5), 1},                               // one output pixel
      {spec(28, 28, 1, 10, 5, 1, 0, true, true), 3},          // MNIST CNN, conv1
      {spec(12, 12, 10, 20, 5, 1, 0, true, true), 17, true},  // MNIST CNN, conv2
      {spec(28, 28, 1, 6, 5, 1, 2, true, true), 2},           // LeNet-5, conv1
      {spec(14, 14, 6, 16, 5, 1, 0, true, true), 15},         // LeNet-5, conv2
      {spec(9, 7, 3, 5, 3, 1, 1), 16},                        // odd everything, dense gradient
      {spec(9, 7, 3, 5, 3, 1, 1, true), 2},                   // odd, pool leaves a row out
      {spec(11, 8, 2, 33, 3, 2, 1, false, true), 4},          // stride 2, one channel past a vector
      {spec(13, 13, 4, 7, 5, 2, 2, true, true), 3, true},     // stride 2 under a pool
      {spec(8, 8, 16, 64, 1), 2},                             // 1 x 1
      {spec(10, 10, 2, 3, 7, 1, 3, false, false), 2, true},   // kernel 7
      {spec(6, 6, 64, 24, 3, 1, 1, true, true), 2},           // 192 floats under a kernel row
      {spec(7, 9, 5, 2, 3, 3, 0, false, false), 1},           // stride as wide as the kernel
      {spec(4, 4, 3, 4, 4, 1, 0, false, true), 5},            // kernel as large as the image
      {spec(4, 4, 16, 16, 3, 1, 1), 1},                       // Winograd: one tile
      {spec(9, 7, 35, 50, 3, 1, 1), 3},                       // odd everything
      {spec(13, 8, 64, 96, 3, 1, 0), 2},                      // no padding, several panels
      {spec(3, 5, 16, 24, 3, 1, 2), 2},                       // padding as wide as it can be
      {spec(10, 12, 16, 17, 3, 1, 1, true, true), 9, true},   // all that follows
      {spec(4, 4, 130, 70, 3, 1, 1), 2},                      // depth of more than a block
      {spec(5, 5, 16, 16, 1), 1},                             // matrix: pixels themselves
      {spec(6, 7, 17, 90, 1), 13},                            // odd everything, several panels
      {spec(9, 8, 18, 20, 1, 2), 5},                          // 1 x 1, stride 2
      {spec(8, 8, 64, 33, 3, 2, 1), 2},                       // depth of more than a block
      {spec(2, 2, 20, 40, 3, 1, 1, false, true), 7},          // more padding than image
      {spec(2, 2, 150, 133, 3, 1, 1, false, true), 5},        // many weights: in odd pieces
      {spec(2, 1, 401, 350, 1), 3},                           // the same of 1 x 1
      {spec(3, 3, 33, 82, 7, 1, 3), 1},                       // pieces larger than the weights
      {spec(2, 2, 165, 33, 5, 1, 2), 17},                     // many weights, several blocks
      {spec(6, 6, 40, 24, 4, 2, 1), 3},                       // as many taps as lanes
      {spec(7, 9, 16, 19, 5, 2, 2, true, true), 4, true},     // all that follows
      {spec(9, 8, 3, 64, 3, 1, 1, false, true), 3},           // first of a large network
      {spec(11, 13, 3, 32, 7, 2, 3), 2},                      // ResNet's for ImageNet
      {spec(2, 3, 1, 32, 7, 1, 3), 2},                        // a kernel larger than the image
      {grouped(32, spec(8, 8, 32, 32, 3, 1, 1)), 2},          // depthwise
      {grouped(19, spec(7, 9, 19, 19, 3, 2, 1)), 3},          // depthwise, odd, stride 2
      {grouped(17, spec(8, 6, 17, 17, 3, 2, 1)), 2},          // even, stride 2
      {grouped(5, spec(1, 1, 5, 5, 3, 1, 1)), 2},             // one pixel
      {grouped(5, spec(1, 1, 5, 5, 3, 2, 1)), 2},             // one pixel, stride 2
      {grouped(40, spec(6, 7, 40, 40, 3, 1, 1, true, true)), 2, true},  // all that follows
      {grouped(6, spec(7, 7, 6, 6, 3, 1, 0)), 2},                       // no padding
      {grouped(3, spec(5, 6, 3, 3, 5, 1, 2, true, true)), 3, true},  // depthwise, all that follows
      {grouped(1, spec(3, 3, 1, 1, 3, 2, 1)), 1},                    // one channel
      {grouped(2, spec(6, 5, 4, 6, 3, 2, 1, false, true)), 2},       // groups of two
      {grouped(3, spec(6, 6, 3, 9, 3, 1, 1, true, true)), 2, true},  // three outputs per input
  };
}

// Convolution, bias, dropout2d, pool, relu, each as its definition says.
struct ConvReference {
  explicit ConvReference(const ConvCase& c)
      : spec(c.spec),
        sample_count(c.sample_count),
        x(RandomDoubles(spec.input.size() * sample_count, 1)),
        weight(RandomDoubles(spec.weight_size(), 2)),
        bias(RandomDoubles(spec.out_channels, 3)),
        scale(sample_count * spec.out_channels, 1.0),
        dy(RandomDoubles(spec.output().size() * sample_count, 4)) {
    spec.has_channel_scale = true;
    if (!c.has_dropout) return;
    for (size_t i = 0; i < scale.size(); ++i) scale[i] = i % 3 == 0 ? 0.0 : 2.0;
  }

  double Sum(size_t s, size_t y, size_t x0, size_t o) const {
    const SampleShape& in = spec.input;
    const size_t channels = in.channels / spec.groups;  // that this output channel sees
    const size_t first = o / (spec.out_channels / spec.groups) * channels;
    double sum = bias[o];
    for (size_t ky = 0; ky < spec.kernel; ++ky) {
      for (size_t kx = 0; kx < spec.kernel; ++kx) {
        const size_t iy = y * spec.stride + ky - spec.padding;  // wraps where outside
        const size_t ix = x0 * spec.stride + kx - spec.padding;
        if (iy >= in.height || ix >= in.width) continue;
        for (size_t c = 0; c < channels; ++c) {
          sum += x[((s * in.height + iy) * in.width + ix) * in.channels + first + c] *
                 weight[((o * channels + c) * spec.kernel + ky) * spec.kernel + kx];
        }
      }
    }
    return sum * scale[s * spec.out_channels + o];
  }

  Doubles Forward() const {
    const SampleShape out = spec.output();
    Doubles y;
    for (size_t s = 0; s < sample_count; ++s) {
      for (size_t oy = 0; oy < out.height; ++oy) {
        for (size_t ox = 0; ox < out.width; ++ox) {
          for (size_t o = 0; o < out.channels; ++o) y.push_back(Value(s, oy, ox, o));
        }
      }
    }
    return y;
  }

  double Value(size_t s, size_t y, size_t x0, size_t o) const {
    double value = spec.max_pool ? Sum(s, 2 * y, 2 * x0, o) : Sum(s, y, x0, o);
    for (size_t p = 1; spec.max_pool && p < 4; ++p) {
      value = std::max(value, Sum(s, 2 * y + p / 2, 2 * x0 + p % 2, o));
    }
    return spec.relu ? std::max(value, 0.0) : value;
  }

  Conv2dSpec spec;
  uint32_t sample_count;
  Doubles x, weight, bias, scale, dy;
};

// The kernels' results on a reference's inputs.
struct ComputedConv {
  explicit ComputedConv(const ConvReference& r, int scratch_fill = 0xff)
      : x(ToFloats(r.x)),
        weight(ToFloats(r.weight)),
        bias(ToFloats(r.bias)),
        scale(ToFloats(r.scale)),
        dy(ToFloats(r.dy)),
        y(Poisoned(r.dy.size())),
        dx(Poisoned(r.x.size())),
        dweight(Poisoned(r.weight.size())),
        dbias(Poisoned(r.bias.size())),
        argmax(r.dy.size() + kSlackElements),
        scratch(Conv2dScratchBytes(TestDevice(), r.spec, r.sample_count) / sizeof(float) + 1) {
    std::fill_n(argmax.data(), argmax.size(), scratch_fill);
    std::memset(scratch.data(), scratch_fill, scratch.size() * sizeof(float));
    std::span<std::byte> bytes = scratch.bytes();
    Conv2dForward(TestDevice(), r.spec,
                  {r.sample_count, x.data(), weight.data(), bias.data(), scale.data(), y.data(),
                   argmax.data()},
                  bytes);
    std::memset(scratch.data(), scratch_fill, scratch.size() * sizeof(float));
    Conv2dBackward(TestDevice(), r.spec,
                   {r.sample_count, x.data(), weight.data(), scale.data(), y.data(), argmax.data(),
                    dy.data(), dx.data(), dweight.data(), dbias.data()},
                   bytes);
  }
  Floats x, weight, bias, scale, dy, y, dx, dweight, dbias;
  Array<int32_t> argmax;
  Floats scratch;
};

TEST_CASE("convolution forward follows its definition on every shape") {
  for (const ConvCase& c : ConvCases()) {
    CAPTURE(c.spec.input.height);
    CAPTURE(c.spec.input.channels);
    CAPTURE(c.spec.out_channels);
    const ConvReference reference(c);
    CHECK(RelativeError(ComputedConv(reference).y.data(), reference.Forward()) < kConvForwardTol);
  }
}

TEST_CASE("convolution gradients equal finite differences on every shape") {
  for (const ConvCase& c : ConvCases()) {
    CAPTURE(c.spec.input.height);
    CAPTURE(c.spec.input.channels);
    CAPTURE(c.spec.out_channels);
    ConvReference reference(c);
    const ComputedConv computed(reference);
    auto loss = [&] { return DotProduct(reference.Forward(), reference.dy); };
    CHECK(FiniteDifferenceError(reference.x, loss, computed.dx.data()) < kConvBackwardTol);
    CHECK(FiniteDifferenceError(reference.weight, loss, computed.dweight.data()) <
          kConvBackwardTol);
    CHECK(FiniteDifferenceError(reference.bias, loss, computed.dbias.data()) < kConvBackwardTol);
  }
}

TEST_CASE("convolution does not depend on what was in its buffers and in its scratch") {
  for (const ConvCase& c : ConvCases()) {
    const ConvReference reference(c);
    const ComputedConv a(reference, 0xff), b(reference, 0x3f);
    CHECK(SameBits(a.y.data(), b.y.data(), reference.dy.size()));
    CHECK(SameBits(a.dx.data(), b.dx.data(), reference.x.size()));
    CHECK(SameBits(a.dweight.data(), b.dweight.data(), reference.weight.size()));
    CHECK(SameBits(a.dbias.data(), b.dbias.data(), reference.bias.size()));
    CHECK(IsAllWritten(a.y, reference.dy.size()));
    CHECK(IsAllWritten(a.dx, reference.x.size()));
    CHECK(IsAllWritten(a.dweight, reference.weight.size()));
    CHECK(IsAllWritten(a.dbias, reference.bias.size()));
  }
}

TEST_CASE("a first layer's convolution makes the same weight gradients without a data gradient") {
  const ConvCase c = ConvCases()[3];
  const ConvReference r(c);
  ComputedConv computed(r);
  Floats dweight = Poisoned(r.weight.size()), dbias = Poisoned(r.bias.size());
  Conv2dBackward(TestDevice(), r.spec,
                 {r.sample_count, computed.x.data(), computed.weight.data(), computed.scale.data(),
                  computed.y.data(), computed.argmax.data(), computed.dy.data(), nullptr,
                  dweight.data(), dbias.data()},
                 computed.scratch.bytes());
  CHECK(SameBits(dweight.data(), computed.dweight.data(), r.weight.size()));
  CHECK(SameBits(dbias.data(), computed.dbias.data(), r.bias.size()));
}

TEST_CASE("a convolution without a bias is one with a bias of zeros, and its gradient not wanted") {
  for (const ConvCase& c : ConvCases()) {
    ConvReference r(c);
    r.bias.assign(r.bias.size(), 0.0);
    ComputedConv computed(r);
    Floats y = Poisoned(r.dy.size()), dx = Poisoned(r.x.size()),
           dweight = Poisoned(r.weight.size());
    Array<int32_t> argmax(r.dy.size() + kSlackElements);
    const std::span<std::byte> scratch = computed.scratch.bytes();
    const float* scale = c.has_dropout ? computed.scale.data() : nullptr;
    Conv2dForward(TestDevice(), r.spec,
                  {r.sample_count, computed.x.data(), computed.weight.data(), nullptr, scale,
                   y.data(), argmax.data()},
                  scratch);
    Conv2dBackward(TestDevice(), r.spec,
                   {r.sample_count, computed.x.data(), computed.weight.data(), scale, y.data(),
                    argmax.data(), computed.dy.data(), dx.data(), dweight.data(), nullptr},
                   scratch);
    CHECK(SameBits(y.data(), computed.y.data(), r.dy.size()));
    CHECK(SameBits(dx.data(), computed.dx.data(), r.x.size()));
    CHECK(SameBits(dweight.data(), computed.dweight.data(), r.weight.size()));
  }
}

// On the CPU a convolution's bits do not depend on the samples beside it; cuDNN may choose
// another engine for another number of them.
bool SameSamples(const float* alone, const float* beside, size_t count, double tolerance) {
  if (TestDevice().kind == DeviceKind::kCpu) return SameBits(alone, beside, count);
  return RelativeError(alone, Doubles(beside, beside + count)) < tolerance;
}

TEST_CASE("a sample's outputs do not depend on the samples beside it") {
  for (const ConvCase& c : ConvCases()) {
    CAPTURE(c.spec.input.height);
    CAPTURE(c.spec.input.channels);
    ConvReference all(c);
    const ComputedConv computed(all);
    ConvReference last = all;
    const size_t before = c.sample_count - 1;
    last.sample_count = 1;
    last.x.erase(last.x.begin(), last.x.begin() + before * all.spec.input.size());
    last.scale.erase(last.scale.begin(), last.scale.begin() + before * all.spec.out_channels);
    last.dy.erase(last.dy.begin(), last.dy.begin() + before * all.spec.output().size());
    const ComputedConv alone(last);
    CHECK(SameSamples(alone.y.data(), computed.y.data() + before * all.spec.output().size(),
                      last.dy.size(), kConvForwardTol));
    CHECK(SameSamples(alone.dx.data(), computed.dx.data() + before * all.spec.input.size(),
                      last.x.size(), kConvBackwardTol));
  }
}

TEST_CASE("a convolution of more than one block equals those of its samples") {
  constexpr double kLongSumTol = 2e-5;  // Winograd's, 1,856 tiles in one chain: measured 5.5e-6
  const std::vector<ConvCase> cases{{{{32, 32, 16}, 16, 3, 1, 1}, 29},  // Winograd
                                    {{{2, 2, 165}, 33, 5, 1, 2}, 17}};  // matrix, many weights
  for (const ConvCase& c : cases) {
    CAPTURE(c.spec.input.channels);
    const ConvReference all(c);
    const ComputedConv computed(all);
    const size_t in = all.spec.input.size(), out = all.spec.output().size();
    Doubles dweight(all.weight.size(), 0.0);
    for (size_t s = 0; s < all.sample_count; ++s) {
      ConvReference one({all.spec, 1});
      one.x.assign(all.x.begin() + s * in, all.x.begin() + (s + 1) * in);
      one.dy.assign(all.dy.begin() + s * out, all.dy.begin() + (s + 1) * out);
      const ComputedConv alone(one);
      CHECK(SameSamples(alone.y.data(), computed.y.data() + s * out, out, kConvForwardTol));
      CHECK(SameSamples(alone.dx.data(), computed.dx.data() + s * in, in, kConvBackwardTol));
      for (size_t i = 0; i < dweight.size(); ++i) {
        dweight[i] += static_cast<double>(alone.dweight.data()[i]);
      }
    }
    CHECK(RelativeError(computed.dweight.data(), dweight) < kLongSumTol);
  }
}

}  // namespace
}  // namespace pando
