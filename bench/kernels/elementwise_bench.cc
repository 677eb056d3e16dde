// Batch norm and additions, one thread. They are bound by memory: GB/s counts every array once for
// each time that it must be read or written.
#include "bench/kernels/benches.h"
#include "bench/kernels/measure.h"

namespace pando {
namespace {

void Forward(benchmark::State& state, const BatchNormSpec& spec, uint32_t sample_count) {
  const size_t count = sample_count * spec.shape.size(), channels = spec.shape.channels;
  FloatBuffer x = Filled(count), y = Filled(count), weight = Filled(channels),
              bias = Filled(channels), mean = Filled(channels), inverse_std = Filled(channels),
              variance = Filled(channels);
  FloatBuffer scratch(BatchNormScratchBytes(kCpu, spec) / sizeof(float));
  MeasureBytes(state, 3.0 * sizeof(float) * static_cast<double>(count), [&] {
    BatchNormForward(kCpu, spec,
                     {.sample_count = sample_count,
                      .x = x.data(),
                      .weight = weight.data(),
                      .bias = bias.data(),
                      .y = y.data(),
                      .mean = mean.data(),
                      .inverse_std = inverse_std.data(),
                      .variance = variance.data()},
                     std::as_writable_bytes(scratch.span()));
  });
}

void Backward(benchmark::State& state, const BatchNormSpec& spec, uint32_t sample_count) {
  const size_t count = sample_count * spec.shape.size(), channels = spec.shape.channels;
  FloatBuffer x = Filled(count), y = Filled(count), dy = Filled(count), dx = Filled(count),
              weight = Filled(channels), mean = Filled(channels), inverse_std = Filled(channels),
              dweight = Filled(channels), dbias = Filled(channels);
  FloatBuffer scratch(BatchNormScratchBytes(kCpu, spec) / sizeof(float));
  MeasureBytes(state, 7.0 * sizeof(float) * static_cast<double>(count), [&] {
    BatchNormBackward(kCpu, spec,
                      {.sample_count = sample_count,
                       .x = x.data(),
                       .weight = weight.data(),
                       .mean = mean.data(),
                       .inverse_std = inverse_std.data(),
                       .y = y.data(),
                       .dy = dy.data(),
                       .dx = dx.data(),
                       .dweight = dweight.data(),
                       .dbias = dbias.data()},
                      std::as_writable_bytes(scratch.span()));
  });
}

void Register(const std::string& name, const BatchNormSpec& spec, uint32_t sample_count) {
  RegisterBench(name + "/forward",
                [=](benchmark::State& state) { Forward(state, spec, sample_count); });
  RegisterBench(name + "/backward",
                [=](benchmark::State& state) { Backward(state, spec, sample_count); });
}

}  // namespace

void RegisterElementwise() {
  using enum Activation;
  Register("resnet18/batch_norm_64_at_32", {.shape = {32, 32, 64}, .activation = kRelu}, 32);
  Register("resnet18/batch_norm_512_at_4", {.shape = {4, 4, 512}, .activation = kRelu}, 32);
  Register("mobilenet/batch_norm_96_at_32", {.shape = {32, 32, 96}, .activation = kRelu6}, 32);
  Register("mobilenet/batch_norm_24_at_16", {.shape = {16, 16, 24}}, 32);
  Register("mobilenet/batch_norm_384_at_4", {.shape = {4, 4, 384}, .activation = kRelu6}, 32);
}

}  // namespace pando
