// The convolutions of the papers' networks, one thread: forward, and both gradients.
#include "bench/kernels/benches.h"
#include "bench/kernels/measure.h"

namespace pando {
namespace {

struct Arrays {
  Arrays(const Conv2dSpec& spec, uint32_t sample_count)
      : x(Filled(sample_count * spec.input.size())),
        weight(Filled(spec.weight_size())),
        bias(Filled(spec.out_channels)),
        y(Filled(sample_count * spec.output().size())),
        dx(Filled(sample_count * spec.input.size())),
        dweight(Filled(spec.weight_size())),
        dbias(Filled(spec.out_channels)),
        scratch(Conv2dScratchBytes(kCpu, spec, sample_count) / sizeof(float)),
        argmax(sample_count * spec.output().size() + kSlackElements) {}
  FloatBuffer x, weight, bias, y, dx, dweight, dbias, scratch;
  std::vector<int32_t> argmax;
};

double Flops(const Conv2dSpec& spec, uint32_t sample_count) {
  return 2.0 * sample_count * static_cast<double>(spec.conv_output().size()) *
         (spec.input.channels / spec.groups) * spec.kernel * spec.kernel;
}

void Forward(benchmark::State& state, Conv2dSpec spec, uint32_t sample_count) {
  Arrays a(spec, sample_count);
  Measure(state, Flops(spec, sample_count), [&] {
    Conv2dForward(kCpu, spec,
                  {.sample_count = sample_count,
                   .x = a.x.data(),
                   .weight = a.weight.data(),
                   .bias = spec.relu ? a.bias.data() : nullptr,
                   .y = a.y.data(),
                   .argmax = a.argmax.data()},
                  std::as_writable_bytes(a.scratch.span()));
  });
}

void Backward(benchmark::State& state, Conv2dSpec spec, uint32_t sample_count, bool wants_data) {
  Arrays a(spec, sample_count);
  Measure(state, (wants_data ? 2 : 1) * Flops(spec, sample_count), [&] {
    Conv2dBackward(kCpu, spec,
                   {.sample_count = sample_count,
                    .x = a.x.data(),
                    .weight = a.weight.data(),
                    .y = a.y.data(),
                    .argmax = a.argmax.data(),
                    .dy = a.y.data(),
                    .dx = wants_data ? a.dx.data() : nullptr,
                    .dweight = a.dweight.data(),
                    .dbias = spec.relu ? a.dbias.data() : nullptr},
                   std::as_writable_bytes(a.scratch.span()));
  });
}

void Register(const std::string& name, const Conv2dSpec& spec, uint32_t sample_count) {
  RegisterBench(name + "/forward",
                [=](benchmark::State& state) { Forward(state, spec, sample_count); });
  RegisterBench(name + "/backward",
                [=](benchmark::State& state) { Backward(state, spec, sample_count, true); });
  RegisterBench(name + "/backward_weights",
                [=](benchmark::State& state) { Backward(state, spec, sample_count, false); });
}

Conv2dSpec Spec(uint32_t side, uint32_t channels, uint32_t out_channels, uint32_t kernel,
                uint32_t stride = 1, uint32_t groups = 1) {
  return {.input = {side, side, channels},
          .out_channels = out_channels,
          .kernel = kernel,
          .stride = stride,
          .padding = kernel / 2,
          .groups = groups};
}

}  // namespace

void RegisterConvolutions() {
  Register("resnet18/stem_3_64", Spec(32, 3, 64, 3), 32);
  Register("resnet18/3x3_64_at_32", Spec(32, 64, 64, 3), 32);
  Register("resnet18/3x3_128_at_16", Spec(16, 128, 128, 3), 32);
  Register("resnet18/3x3_256_at_8", Spec(8, 256, 256, 3), 32);
  Register("resnet18/3x3_512_at_4", Spec(4, 512, 512, 3), 32);
  Register("resnet18/3x3s2_64_128_at_32", Spec(32, 64, 128, 3, 2), 32);
  Register("resnet18/3x3s2_256_512_at_8", Spec(8, 256, 512, 3, 2), 32);
  Register("resnet18/1x1s2_64_128_at_32", Spec(32, 64, 128, 1, 2), 32);
  Register("vgg16/3x3_64_at_32", Spec(32, 64, 64, 3), 16);
  Conv2dSpec pooled = Spec(32, 64, 64, 3);
  pooled.relu = pooled.max_pool = true;
  Register("vgg16/3x3_64_at_32_pooled", pooled, 16);
  Register("vgg16/3x3_128_256_at_8", Spec(8, 128, 256, 3), 16);
  Register("vgg16/3x3_512_at_4", Spec(4, 512, 512, 3), 16);
  Register("vgg16/3x3_512_at_2", Spec(2, 512, 512, 3), 16);
  Register("mobilenet/1x1_16_96_at_32", Spec(32, 16, 96, 1), 32);
  Register("mobilenet/1x1_96_24_at_16", Spec(16, 96, 24, 1), 32);
  Register("mobilenet/1x1_384_64_at_4", Spec(4, 384, 64, 1), 32);
  Register("mobilenet/1x1_320_1280_at_2", Spec(2, 320, 1280, 1), 32);
  Register("mobilenet/depthwise_96_at_32s2", Spec(32, 96, 96, 3, 2, 96), 32);
  Register("mobilenet/depthwise_144_at_16", Spec(16, 144, 144, 3, 1, 144), 32);
  Register("mobilenet/depthwise_384_at_4", Spec(4, 384, 384, 3, 1, 384), 32);
}

}  // namespace pando
