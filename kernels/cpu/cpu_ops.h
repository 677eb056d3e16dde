// The CPU's versions of the operations of kernels/ops.h, which says what they do. Called by
// kernels/ops.cc, which has checked the shapes.
#pragma once

#include "kernels/ops.h"

namespace pando::cpu {

size_t Conv2dForwardScratchBytes(const Conv2dSpec& spec);
size_t Conv2dBackwardScratchBytes(const Conv2dSpec& spec);
void Conv2dForward(const Conv2dSpec& spec, const Conv2dForwardArgs& args,
                   std::span<std::byte> scratch);
void Conv2dBackward(const Conv2dSpec& spec, const Conv2dBackwardArgs& args,
                    std::span<std::byte> scratch);

size_t LinearScratchBytes(const LinearSpec& spec, uint32_t sample_count_max);
void LinearForward(const LinearSpec& spec, const LinearForwardArgs& args,
                   std::span<std::byte> scratch);
void LinearBackward(const LinearSpec& spec, const LinearBackwardArgs& args,
                    std::span<std::byte> scratch);

void ReluForward(size_t count, const float* x, float* y);
void ReluBackward(size_t count, const float* y, const float* dy, float* dx);
void Multiply(size_t count, const float* x, const float* factor, float* y);
void MultiplyChannels(uint32_t sample_count, const SampleShape& shape, const float* x,
                      const float* factor, float* y);
void DropoutFactors(const DropoutStream& stream, float probability, size_t count, float* factor);

void MaxPoolForward(const Pool2dSpec& spec, uint32_t sample_count, const float* x, float* y,
                    int32_t* argmax);
void MaxPoolBackward(const Pool2dSpec& spec, uint32_t sample_count, const int32_t* argmax,
                     const float* dy, float* dx);
void AveragePoolForward(const Pool2dSpec& spec, uint32_t sample_count, const float* x, float* y);
void AveragePoolBackward(const Pool2dSpec& spec, uint32_t sample_count, const float* dy, float* dx);

void ImportBatch(const Batch& batch, float* x);
void FlattenForward(uint32_t sample_count, const SampleShape& shape, const float* x, float* y);
void FlattenBackward(uint32_t sample_count, const SampleShape& shape, const float* dy, float* dx);
CrossEntropyScore SoftmaxCrossEntropy(uint32_t sample_count, uint32_t class_count,
                                      const float* logits, const int32_t* labels, float* dlogits);

}  // namespace pando::cpu
