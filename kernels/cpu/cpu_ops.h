// The CPU's versions of the operations of kernels/ops.h, which says what they do. Called by
// kernels/ops.cc, which has checked the shapes.
#pragma once

#include "kernels/ops.h"

namespace pando::cpu {

using Conv2dForwardArgs = Conv2dForwardArgsOf<float>;
using Conv2dBackwardArgs = Conv2dBackwardArgsOf<float>;
using LinearForwardArgs = LinearForwardArgsOf<float>;
using LinearBackwardArgs = LinearBackwardArgsOf<float>;
using BatchNormForwardArgs = BatchNormForwardArgsOf<float>;
using BatchNormInferenceArgs = BatchNormInferenceArgsOf<float>;
using BatchNormBackwardArgs = BatchNormBackwardArgsOf<float>;

size_t Conv2dScratchBytes(const Conv2dSpec& spec, uint32_t sample_count_max);
void Conv2dForward(const Conv2dSpec& spec, const Conv2dForwardArgs& args,
                   std::span<std::byte> scratch);
void Conv2dBackward(const Conv2dSpec& spec, const Conv2dBackwardArgs& args,
                    std::span<std::byte> scratch);

size_t LinearScratchBytes(const LinearSpec& spec, uint32_t sample_count_max);
void LinearForward(const LinearSpec& spec, const LinearForwardArgs& args,
                   std::span<std::byte> scratch);
void LinearBackward(const LinearSpec& spec, const LinearBackwardArgs& args,
                    std::span<std::byte> scratch);

size_t BatchNormScratchBytes(const BatchNormSpec& spec);
void BatchNormForward(const BatchNormSpec& spec, const BatchNormForwardArgs& args,
                      std::span<std::byte> scratch);
void BatchNormInference(const BatchNormSpec& spec, const BatchNormInferenceArgs& args,
                        std::span<std::byte> scratch);
void BatchNormBackward(const BatchNormSpec& spec, const BatchNormBackwardArgs& args,
                       std::span<std::byte> scratch);

void ReluForward(size_t count, const float* x, float* y);
void ReluBackward(size_t count, const float* y, const float* dy, float* dx);
void Relu6Forward(size_t count, const float* x, float* y);
void Relu6Backward(size_t count, const float* y, const float* dy, float* dx);
void AddForward(size_t count, const float* a, const float* b, Activation activation, float* y);
void AddBackward(size_t count, const float* y, Activation activation, const float* dy, float* dx);
void AddInPlace(size_t count, const float* x, float* y);
void Multiply(size_t count, const float* x, const float* factor, float* y);
void MultiplyChannels(uint32_t sample_count, const SampleShape& shape, const float* x,
                      const float* factor, float* y);
void Copy(size_t count, const float* x, float* y);
void ScaleFloats(size_t count, const float* x, float factor, float* y);
void AddFloats(size_t count, const float* x, float* y);
void DropoutFactors(PhiloxKey key, const PassNumbers& numbers, float probability, size_t count,
                    float* factor);

void MaxPoolForward(const Pool2dSpec& spec, uint32_t sample_count, const float* x, float* y,
                    int32_t* argmax);
void MaxPoolBackward(const Pool2dSpec& spec, uint32_t sample_count, const int32_t* argmax,
                     const float* dy, float* dx);
void AveragePoolForward(const Pool2dSpec& spec, uint32_t sample_count, const float* x, float* y);
void AveragePoolBackward(const Pool2dSpec& spec, uint32_t sample_count, const float* dy, float* dx);
void AdaptiveAveragePoolForward(const AdaptivePool2dSpec& spec, uint32_t sample_count,
                                const float* x, float* y);
void AdaptiveAveragePoolBackward(const AdaptivePool2dSpec& spec, uint32_t sample_count,
                                 const float* dy, float* dx);

void ImportBatch(const DeviceBatch& batch, uint32_t channels, float* x, int32_t* labels);
void FlattenForward(uint32_t sample_count, const SampleShape& shape, const float* x, float* y);
void FlattenBackward(uint32_t sample_count, const SampleShape& shape, const float* dy, float* dx);
void SoftmaxCrossEntropy(const CrossEntropyArgs& args);

}  // namespace pando::cpu
