// Launchers: each checks its shapes and hands on to the device's version.
#include "kernels/ops.h"

#include "common/check.h"
#include "kernels/cpu/cpu_ops.h"

namespace pando {
namespace {

// The one place that asks which device it is. With a second kind this becomes a switch.
void CheckIsCpu(Device device) { PANDO_CHECK(device.kind == DeviceKind::kCpu); }

void CheckConv2d(const Conv2dSpec& spec) {
  PANDO_CHECK(spec.kernel > 0 && spec.stride > 0 && spec.out_channels > 0);
  PANDO_CHECK(spec.input.height + 2 * spec.padding >= spec.kernel);
  PANDO_CHECK(spec.input.width + 2 * spec.padding >= spec.kernel);
  PANDO_CHECK(spec.output().size() > 0);
  PANDO_CHECK(spec.groups > 0 && spec.input.channels % spec.groups == 0 &&
              spec.out_channels % spec.groups == 0);
}

void CheckPool2d(const Pool2dSpec& spec) {
  PANDO_CHECK(spec.window > 0 && spec.stride > 0);
  PANDO_CHECK(spec.padding <= spec.window / 2);  // else a window could lie in the padding alone
  PANDO_CHECK(spec.input.height + 2 * spec.padding >= spec.window);
  PANDO_CHECK(spec.input.width + 2 * spec.padding >= spec.window);
}

void CheckAdaptivePool2d(const AdaptivePool2dSpec& spec) {
  PANDO_CHECK(spec.input.size() > 0 && spec.out_height > 0 && spec.out_width > 0);
}

void CheckBatchNorm(const BatchNormSpec& spec, uint32_t sample_count) {
  PANDO_CHECK(spec.shape.size() > 0 && sample_count > 0 && spec.eps >= 0.0f);
}

}  // namespace

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

size_t Conv2dScratchBytes(Device device, const Conv2dSpec& spec, uint32_t sample_count_max) {
  CheckIsCpu(device);
  CheckConv2d(spec);
  return cpu::Conv2dScratchBytes(spec, sample_count_max);
}

void Conv2dForward(Device device, const Conv2dSpec& spec, const Conv2dForwardArgs& args,
                   std::span<std::byte> scratch) {
  CheckIsCpu(device);
  CheckConv2d(spec);
  PANDO_CHECK(args.argmax != nullptr || !spec.max_pool);
  cpu::Conv2dForward(spec, args, scratch);
}

void Conv2dBackward(Device device, const Conv2dSpec& spec, const Conv2dBackwardArgs& args,
                    std::span<std::byte> scratch) {
  CheckIsCpu(device);
  CheckConv2d(spec);
  PANDO_CHECK(args.argmax != nullptr || !spec.max_pool);
  cpu::Conv2dBackward(spec, args, scratch);
}

size_t LinearScratchBytes(Device device, const LinearSpec& spec, uint32_t sample_count_max) {
  CheckIsCpu(device);
  return cpu::LinearScratchBytes(spec, sample_count_max);
}

void LinearForward(Device device, const LinearSpec& spec, const LinearForwardArgs& args,
                   std::span<std::byte> scratch) {
  CheckIsCpu(device);
  PANDO_CHECK(args.sample_count > 0 && spec.in_features > 0 && spec.out_features > 0);
  cpu::LinearForward(spec, args, scratch);
}

void LinearBackward(Device device, const LinearSpec& spec, const LinearBackwardArgs& args,
                    std::span<std::byte> scratch) {
  CheckIsCpu(device);
  PANDO_CHECK(args.sample_count > 0 && spec.in_features > 0 && spec.out_features > 0);
  cpu::LinearBackward(spec, args, scratch);
}

size_t BatchNormScratchBytes(Device device, const BatchNormSpec& spec) {
  CheckIsCpu(device);
  return cpu::BatchNormScratchBytes(spec);
}

void BatchNormForward(Device device, const BatchNormSpec& spec, const BatchNormForwardArgs& args,
                      std::span<std::byte> scratch) {
  CheckIsCpu(device);
  CheckBatchNorm(spec, args.sample_count);
  cpu::BatchNormForward(spec, args, scratch);
}

void BatchNormInference(Device device, const BatchNormSpec& spec,
                        const BatchNormInferenceArgs& args, std::span<std::byte> scratch) {
  CheckIsCpu(device);
  CheckBatchNorm(spec, args.sample_count);
  cpu::BatchNormInference(spec, args, scratch);
}

void BatchNormBackward(Device device, const BatchNormSpec& spec, const BatchNormBackwardArgs& args,
                       std::span<std::byte> scratch) {
  CheckIsCpu(device);
  CheckBatchNorm(spec, args.sample_count);
  PANDO_CHECK(args.y != nullptr || spec.activation == Activation::kNone);
  PANDO_CHECK(args.dx == nullptr || args.dx != args.dresidual);
  cpu::BatchNormBackward(spec, args, scratch);
}

void ReluForward(Device device, size_t count, const float* x, float* y) {
  CheckIsCpu(device);
  cpu::ReluForward(count, x, y);
}

void ReluBackward(Device device, size_t count, const float* y, const float* dy, float* dx) {
  CheckIsCpu(device);
  cpu::ReluBackward(count, y, dy, dx);
}

void Relu6Forward(Device device, size_t count, const float* x, float* y) {
  CheckIsCpu(device);
  cpu::Relu6Forward(count, x, y);
}

void Relu6Backward(Device device, size_t count, const float* y, const float* dy, float* dx) {
  CheckIsCpu(device);
  cpu::Relu6Backward(count, y, dy, dx);
}

void AddForward(Device device, size_t count, const float* a, const float* b, Activation activation,
                float* y) {
  CheckIsCpu(device);
  cpu::AddForward(count, a, b, activation, y);
}

void AddBackward(Device device, size_t count, const float* y, Activation activation,
                 const float* dy, float* dx) {
  CheckIsCpu(device);
  cpu::AddBackward(count, y, activation, dy, dx);
}

void AddInPlace(Device device, size_t count, const float* x, float* y) {
  CheckIsCpu(device);
  cpu::AddInPlace(count, x, y);
}

void Multiply(Device device, size_t count, const float* x, const float* factor, float* y) {
  CheckIsCpu(device);
  cpu::Multiply(count, x, factor, y);
}

void MultiplyChannels(Device device, uint32_t sample_count, const SampleShape& shape,
                      const float* x, const float* factor, float* y) {
  CheckIsCpu(device);
  cpu::MultiplyChannels(sample_count, shape, x, factor, y);
}

void DropoutFactors(Device device, const DropoutStream& stream, float probability, size_t count,
                    float* factor) {
  CheckIsCpu(device);
  PANDO_CHECK(probability >= 0.0f && probability < 1.0f);
  cpu::DropoutFactors(stream, probability, count, factor);
}

void MaxPoolForward(Device device, const Pool2dSpec& spec, uint32_t sample_count, const float* x,
                    float* y, int32_t* argmax) {
  CheckIsCpu(device);
  CheckPool2d(spec);
  cpu::MaxPoolForward(spec, sample_count, x, y, argmax);
}

void MaxPoolBackward(Device device, const Pool2dSpec& spec, uint32_t sample_count,
                     const int32_t* argmax, const float* dy, float* dx) {
  CheckIsCpu(device);
  CheckPool2d(spec);
  cpu::MaxPoolBackward(spec, sample_count, argmax, dy, dx);
}

void AveragePoolForward(Device device, const Pool2dSpec& spec, uint32_t sample_count,
                        const float* x, float* y) {
  CheckIsCpu(device);
  CheckPool2d(spec);
  cpu::AveragePoolForward(spec, sample_count, x, y);
}

void AveragePoolBackward(Device device, const Pool2dSpec& spec, uint32_t sample_count,
                         const float* dy, float* dx) {
  CheckIsCpu(device);
  CheckPool2d(spec);
  cpu::AveragePoolBackward(spec, sample_count, dy, dx);
}

void AdaptiveAveragePoolForward(Device device, const AdaptivePool2dSpec& spec,
                                uint32_t sample_count, const float* x, float* y) {
  CheckIsCpu(device);
  CheckAdaptivePool2d(spec);
  cpu::AdaptiveAveragePoolForward(spec, sample_count, x, y);
}

void AdaptiveAveragePoolBackward(Device device, const AdaptivePool2dSpec& spec,
                                 uint32_t sample_count, const float* dy, float* dx) {
  CheckIsCpu(device);
  CheckAdaptivePool2d(spec);
  cpu::AdaptiveAveragePoolBackward(spec, sample_count, dy, dx);
}

void GlobalAveragePoolForward(Device device, uint32_t sample_count, const SampleShape& shape,
                              const float* x, float* y) {
  AdaptiveAveragePoolForward(device, {.input = shape}, sample_count, x, y);
}

void GlobalAveragePoolBackward(Device device, uint32_t sample_count, const SampleShape& shape,
                               const float* dy, float* dx) {
  AdaptiveAveragePoolBackward(device, {.input = shape}, sample_count, dy, dx);
}

void ImportBatch(Device device, const Batch& batch, uint32_t channels, float* x) {
  CheckIsCpu(device);
  PANDO_CHECK(batch.shape.channels == channels || batch.shape.channels == 1);
  const size_t size = batch.sample_count() * batch.shape.size();
  PANDO_CHECK((batch.bytes.size() == size && batch.values.empty()) ||
              (batch.values.size() == size && batch.bytes.empty()));
  cpu::ImportBatch(batch, channels, x);
}

void FlattenForward(Device device, uint32_t sample_count, const SampleShape& shape, const float* x,
                    float* y) {
  CheckIsCpu(device);
  cpu::FlattenForward(sample_count, shape, x, y);
}

void FlattenBackward(Device device, uint32_t sample_count, const SampleShape& shape,
                     const float* dy, float* dx) {
  CheckIsCpu(device);
  cpu::FlattenBackward(sample_count, shape, dy, dx);
}

CrossEntropyScore SoftmaxCrossEntropy(Device device, uint32_t sample_count, uint32_t class_count,
                                      float label_smoothing, const float* logits,
                                      const int32_t* labels, float* dlogits) {
  CheckIsCpu(device);
  PANDO_CHECK(label_smoothing >= 0.0f && label_smoothing <= 1.0f);
  for (size_t s = 0; s < sample_count; ++s) {
    PANDO_CHECK(labels[s] >= 0 && static_cast<uint32_t>(labels[s]) < class_count);
  }
  return cpu::SoftmaxCrossEntropy(sample_count, class_count, label_smoothing, logits, labels,
                                  dlogits);
}

}  // namespace pando
