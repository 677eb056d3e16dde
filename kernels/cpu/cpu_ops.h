// The CPU's versions of the operations of kernels/ops.h, which documents them. Called by
// kernels/ops.cc, which has checked the shapes.
#pragma once

#include "kernels/ops.h"

namespace pando::cpu {

#define PANDO_DECLARE(Name, Spec)         \
  using Name##Args = Name##ArgsOf<float>; \
  void Name(const Spec& spec, const Name##Args& args, std::span<std::byte> scratch);
PANDO_OPERATIONS(PANDO_DECLARE)
#undef PANDO_DECLARE

#define PANDO_DECLARE(Operation) \
  size_t Operation##ScratchBytes(const Operation##Spec& spec, uint32_t sample_count_max);
PANDO_OPERATIONS_WITH_SCRATCH(PANDO_DECLARE)
#undef PANDO_DECLARE
size_t BatchNormScratchBytes(const BatchNormSpec& spec);

void ActivationForward(size_t count, const float* x, Activation activation, float* y);
void ActivationBackward(size_t count, const float* y, Activation activation, const float* dy,
                        float* dx);
void AddForward(size_t count, const float* a, const float* b, Activation activation, float* y);
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
