// Launchers: each checks its shapes and calls the device's version.
#include "kernels/ops.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "common/check.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cuda/cuda_ops.h"

namespace pando {
namespace {

// Converts an operation's argument for the CPU's version, whose elements are floats.
template <class Parameter, class Argument>
std::remove_cvref_t<Parameter> ForCpu(const Argument& argument) {
  if constexpr (requires { static_cast<Parameter>(argument); }) {
    return static_cast<Parameter>(argument);
  } else {
    return std::bit_cast<std::remove_cvref_t<Parameter>>(argument);
  }
}

template <class Result, class... Parameters, class... Arguments>
Result CallOnCpu(Result (*operation)(Parameters...), const Arguments&... arguments) {
  return operation(ForCpu<Parameters>(arguments)...);
}

// Calls cpu::Name or cuda::Name, in a function with a `device`. A macro, because a build without
// CUDA must not name cuda::Name.
#define PANDO_CALL(Name, ...)                                                       \
  return Dispatch(                                                                  \
      device, [&] { return CallOnCpu(cpu::ChosenOperations().Name, __VA_ARGS__); }, \
      [&](auto& gpu) { return cuda::Name(gpu, __VA_ARGS__); })

// Checks an operation's requirements on its arguments, besides samples and a valid spec.
template <class Spec, class Args>
void CheckArgs(const Spec&, const Args&) {}

template <class Args>
void CheckArgs(const Conv2dSpec& spec, const Args& args) {
  PANDO_CHECK(args.argmax != nullptr || !spec.max_pool);
  PANDO_CHECK(args.channel_scale == nullptr || spec.has_channel_scale);
  PANDO_CHECK(args.x_channels == 0 || spec.groups == 1);
}

template <class Args>
void CheckArgs(const BatchNormSpec& spec, const Args& args) {
  PANDO_CHECK(args.residual == nullptr || spec.has_residual);
}

void CheckArgs(const BatchNormSpec& spec, const BatchNormBackwardArgs& args) {
  PANDO_CHECK(args.y != nullptr || spec.activation == Activation::kNone);
  PANDO_CHECK(args.dresidual == nullptr || (spec.has_residual && args.dx != args.dresidual));
}

void CheckPool2d(const Pool2dSpec& spec) {
  PANDO_CHECK(spec.window > 0 && spec.stride > 0);
  PANDO_CHECK(spec.padding <= spec.window / 2);  // else a window could be entirely in the padding
  PANDO_CHECK(spec.input.height + 2 * spec.padding >= spec.window);
  PANDO_CHECK(spec.input.width + 2 * spec.padding >= spec.window);
}

void CheckAdaptivePool2d(const AdaptivePool2dSpec& spec) {
  PANDO_CHECK(spec.input.size() > 0 && spec.out_height > 0 && spec.out_width > 0);
}

}  // namespace

bool Conv2dSpec::IsValid() const {
  return kernel > 0 && stride > 0 && out_channels > 0 && input.height + 2 * padding >= kernel &&
         input.width + 2 * padding >= kernel && output().size() > 0 && groups > 0 &&
         input.channels % groups == 0 && out_channels % groups == 0;
}

SampleShape Conv2dSpec::conv_output() const {
  return {.height = (input.height + 2 * padding - kernel) / stride + 1,
          .width = (input.width + 2 * padding - kernel) / stride + 1,
          .channels = out_channels};
}

SampleShape Conv2dSpec::output() const {
  SampleShape shape = conv_output();
  if (max_pool) shape.height /= 2, shape.width /= 2;
  return shape;
}

size_t Conv2dSpec::weight_size() const {
  return size_t{out_channels} * (input.channels / groups) * kernel * kernel;
}

SampleShape Pool2dSpec::output() const {
  return {.height = (input.height + 2 * padding - window) / stride + 1,
          .width = (input.width + 2 * padding - window) / stride + 1,
          .channels = input.channels};
}

SampleShape AdaptivePool2dSpec::output() const {
  return {.height = out_height, .width = out_width, .channels = input.channels};
}

#define PANDO_DISPATCH(Name, Spec)                                   \
  void Name(Device device, const Spec& spec, const Name##Args& args, \
            std::span<std::byte> scratch) {                          \
    PANDO_CHECK(spec.IsValid() && args.sample_count > 0);            \
    CheckArgs(spec, args);                                           \
    PANDO_CALL(Name, spec, args, scratch);                           \
  }
PANDO_OPERATIONS_WITH_ARGS(PANDO_DISPATCH)
#undef PANDO_DISPATCH

#define PANDO_DISPATCH(Operation)                                            \
  size_t Operation##ScratchBytes(Device device, const Operation##Spec& spec, \
                                 uint32_t sample_count_max) {                \
    PANDO_CHECK(spec.IsValid());                                             \
    PANDO_CALL(Operation##ScratchBytes, spec, sample_count_max);             \
  }
PANDO_OPERATIONS_WITH_SCRATCH(PANDO_DISPATCH)
#undef PANDO_DISPATCH

size_t BatchNormScratchBytes(Device device, const BatchNormSpec& spec) {
  PANDO_CALL(BatchNormScratchBytes, spec);
}

void ActivationForward(Device device, size_t count, const void* x, Activation activation, void* y) {
  PANDO_CALL(ActivationForward, count, x, activation, y);
}

void ActivationBackward(Device device, size_t count, const void* y, Activation activation,
                        const void* dy, void* dx) {
  PANDO_CALL(ActivationBackward, count, y, activation, dy, dx);
}

void AddForward(Device device, size_t count, const void* a, const void* b, Activation activation,
                void* y) {
  PANDO_CALL(AddForward, count, a, b, activation, y);
}

void AddInPlace(Device device, size_t count, const void* x, void* y) {
  PANDO_CALL(AddInPlace, count, x, y);
}

void Multiply(Device device, size_t count, const void* x, const float* factor, void* y) {
  PANDO_CALL(Multiply, count, x, factor, y);
}

void MultiplyChannels(Device device, uint32_t sample_count, const SampleShape& shape, const void* x,
                      const float* factor, void* y) {
  PANDO_CALL(MultiplyChannels, sample_count, shape, x, factor, y);
}

void Copy(Device device, size_t count, const void* x, void* y) { PANDO_CALL(Copy, count, x, y); }

void ScaleFloats(Device device, size_t count, const float* x, float factor, float* y) {
  PANDO_CALL(ScaleFloats, count, x, factor, y);
}

void ScaleFloatsInPlace(Device device, size_t count, const float* factor, float* x) {
  PANDO_CALL(ScaleFloatsInPlace, count, factor, x);
}

void AddFloats(Device device, size_t count, const float* x, float* y) {
  PANDO_CALL(AddFloats, count, x, y);
}

void DropoutFactors(Device device, PhiloxKey key, const PassNumbers* numbers, float probability,
                    size_t count, float* factor) {
  PANDO_CHECK(probability >= 0.0f && probability < 1.0f);
  PANDO_CALL(DropoutFactors, key, numbers, probability, count, factor);
}

void MaxPoolForward(Device device, const Pool2dSpec& spec, uint32_t sample_count, const void* x,
                    void* y, int32_t* argmax) {
  CheckPool2d(spec);
  PANDO_CALL(MaxPoolForward, spec, sample_count, x, y, argmax);
}

void MaxPoolBackward(Device device, const Pool2dSpec& spec, uint32_t sample_count,
                     const int32_t* argmax, const void* dy, void* dx) {
  CheckPool2d(spec);
  PANDO_CALL(MaxPoolBackward, spec, sample_count, argmax, dy, dx);
}

void AveragePoolForward(Device device, const Pool2dSpec& spec, uint32_t sample_count, const void* x,
                        void* y) {
  CheckPool2d(spec);
  PANDO_CALL(AveragePoolForward, spec, sample_count, x, y);
}

void AveragePoolBackward(Device device, const Pool2dSpec& spec, uint32_t sample_count,
                         const void* dy, void* dx) {
  CheckPool2d(spec);
  PANDO_CALL(AveragePoolBackward, spec, sample_count, dy, dx);
}

void AdaptiveAveragePoolForward(Device device, const AdaptivePool2dSpec& spec,
                                uint32_t sample_count, const void* x, void* y) {
  CheckAdaptivePool2d(spec);
  PANDO_CALL(AdaptiveAveragePoolForward, spec, sample_count, x, y);
}

void AdaptiveAveragePoolBackward(Device device, const AdaptivePool2dSpec& spec,
                                 uint32_t sample_count, const void* dy, void* dx) {
  CheckAdaptivePool2d(spec);
  PANDO_CALL(AdaptiveAveragePoolBackward, spec, sample_count, dy, dx);
}

uint32_t StoredChannels(Device device, uint32_t channels) {
  constexpr uint32_t kFirst = 3, kPadded = 8;
  const bool is_padded = device.kind == DeviceKind::kCuda && ElementBytes(device.element) == 2 &&
                         channels >= kFirst && channels < kPadded;
  return is_padded ? kPadded : channels;
}

void ImportBatch(Device device, const DeviceBatch& batch, uint32_t channels, void* x,
                 int32_t* labels, uint32_t stored_channels) {
  if (stored_channels == 0) stored_channels = channels;
  PANDO_CHECK(stored_channels == channels || stored_channels == StoredChannels(device, channels));
  PANDO_CHECK(batch.shape.channels == channels || batch.shape.channels == 1);
  PANDO_CHECK((batch.bytes == nullptr) != (batch.values == nullptr));
  PANDO_CHECK((batch.bytes == nullptr) == (batch.byte_values == nullptr));
  PANDO_CHECK(batch.moves == nullptr || batch.bytes != nullptr);
  Dispatch(
      device,
      [&] { cpu::ChosenOperations().ImportBatch(batch, channels, static_cast<float*>(x), labels); },
      [&](auto& gpu) { cuda::ImportBatch(gpu, batch, channels, stored_channels, x, labels); });
}

void ImportBatch(Device device, const Batch& batch, uint32_t channels, void* x, int32_t* labels,
                 uint32_t stored_channels) {
  const size_t size = batch.sample_count() * batch.shape.size();
  PANDO_CHECK((batch.bytes.size() == size && batch.values.empty()) ||
              (batch.values.size() == size && batch.bytes.empty()));
  PANDO_CHECK(batch.moves.empty() || batch.moves.size() == batch.sample_count());
  const std::vector<float> byte_values = MakeByteValues(batch);
  DeviceBatch there{.shape = batch.shape,
                    .sample_count = batch.sample_count(),
                    .labels = batch.labels.data(),
                    .byte_values = batch.bytes.empty() ? nullptr : byte_values.data(),
                    .bytes = batch.bytes.empty() ? nullptr : batch.bytes.data(),
                    .moves = batch.moves.empty() ? nullptr : batch.moves.data(),
                    .values = batch.values.empty() ? nullptr : batch.values.data()};
  if constexpr (kHasCuda) {
    if (device.kind == DeviceKind::kCuda) there = cuda::UploadBatch(*device.cuda, there);
  }
  ImportBatch(device, there, channels, x, labels, stored_channels);
}

std::vector<float> MakeByteValues(const Batch& batch) {
  std::vector<float> values;
  for (uint32_t c = 0; c < batch.shape.channels && !batch.bytes.empty(); ++c) {
    const bool is_named = batch.normalisation != nullptr;
    const float mean = is_named ? batch.normalisation->mean[c] : 0.0f;
    const float deviation = is_named ? batch.normalisation->stddev[c] : 1.0f;
    for (int byte = 0; byte < 256; ++byte)
      values.push_back((static_cast<float>(byte) / 255.0f - mean) / deviation);
  }
  return values;
}

void ExportFloats(Device device, size_t count, const void* x, float* host) {
  PANDO_CALL(ExportFloats, count, x, host);
}

void TransposeSamples(Device device, uint32_t sample_count, uint32_t rows, uint32_t columns,
                      const void* x, void* y) {
  PANDO_CALL(TransposeSamples, sample_count, rows, columns, x, y);
}

size_t CrossEntropyScratchBytes(Device device, uint32_t sample_count_max) {
  PANDO_CALL(CrossEntropyScratchBytes, sample_count_max);
}

void SoftmaxCrossEntropy(Device device, const CrossEntropyArgs& args,
                         std::span<std::byte> scratch) {
  PANDO_CHECK(args.label_smoothing >= 0.0f && args.label_smoothing <= 1.0f);
  PANDO_CHECK(args.class_count > 0);
  PANDO_CALL(SoftmaxCrossEntropy, args, scratch);
}

void ScoreToFloats(Device device, const CrossEntropyScore* score, float* loss_and_correct) {
  PANDO_CALL(ScoreToFloats, score, loss_and_correct);
}

}  // namespace pando
