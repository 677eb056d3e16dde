// CUDA's versions of the operations of kernels/ops.h, which says what they do, and of the memory of
// kernels/device.h. Called by kernels/ops.cc and kernels/device.cc, which have checked the shapes.
// Includes nothing of CUDA: a build without it compiles this header and links none of these.
#pragma once

#include "kernels/ops.h"

#ifndef PANDO_CUDA
#define PANDO_CUDA 0
#endif

namespace pando {

inline constexpr bool kHasCuda = PANDO_CUDA;  // of this build

}  // namespace pando

namespace pando::cuda {

std::byte* Allocate(CudaDevice& gpu, size_t size_bytes);
void Free(CudaDevice& gpu, std::byte* memory);
void Upload(CudaDevice& gpu, std::span<const std::byte> host, void* to);
void Download(CudaDevice& gpu, const void* from, std::span<std::byte> host);
void Synchronize(CudaDevice& gpu);
void UseOnThisThread(CudaDevice& gpu);
DeviceRoom RoomOf(CudaDevice& gpu);
FloatBuffer::Memory AllocateFloats(CudaDevice& gpu, size_t float_count);
FloatBuffer::Memory AllocatePinnedFloats(CudaDevice& gpu, size_t float_count);

size_t Conv2dScratchBytes(CudaDevice& gpu, const Conv2dSpec& spec, uint32_t sample_count_max);
void Conv2dForward(CudaDevice& gpu, const Conv2dSpec& spec, const Conv2dForwardArgs& args,
                   std::span<std::byte> scratch);
void Conv2dBackward(CudaDevice& gpu, const Conv2dSpec& spec, const Conv2dBackwardArgs& args,
                    std::span<std::byte> scratch);

size_t LinearScratchBytes(CudaDevice& gpu, const LinearSpec& spec, uint32_t sample_count_max);
void LinearForward(CudaDevice& gpu, const LinearSpec& spec, const LinearForwardArgs& args,
                   std::span<std::byte> scratch);
void LinearBackward(CudaDevice& gpu, const LinearSpec& spec, const LinearBackwardArgs& args,
                    std::span<std::byte> scratch);

size_t BatchNormScratchBytes(CudaDevice& gpu, const BatchNormSpec& spec);
void BatchNormForward(CudaDevice& gpu, const BatchNormSpec& spec, const BatchNormForwardArgs& args,
                      std::span<std::byte> scratch);
void BatchNormInference(CudaDevice& gpu, const BatchNormSpec& spec,
                        const BatchNormInferenceArgs& args, std::span<std::byte> scratch);
void BatchNormBackward(CudaDevice& gpu, const BatchNormSpec& spec,
                       const BatchNormBackwardArgs& args, std::span<std::byte> scratch);

void ReluForward(CudaDevice& gpu, size_t count, const void* x, void* y);
void ReluBackward(CudaDevice& gpu, size_t count, const void* y, const void* dy, void* dx);
void Relu6Forward(CudaDevice& gpu, size_t count, const void* x, void* y);
void Relu6Backward(CudaDevice& gpu, size_t count, const void* y, const void* dy, void* dx);
void AddForward(CudaDevice& gpu, size_t count, const void* a, const void* b, Activation activation,
                void* y);
void AddBackward(CudaDevice& gpu, size_t count, const void* y, Activation activation,
                 const void* dy, void* dx);
void AddInPlace(CudaDevice& gpu, size_t count, const void* x, void* y);
void Multiply(CudaDevice& gpu, size_t count, const void* x, const float* factor, void* y);
void MultiplyChannels(CudaDevice& gpu, uint32_t sample_count, const SampleShape& shape,
                      const void* x, const float* factor, void* y);
void Copy(CudaDevice& gpu, size_t count, const void* x, void* y);
void ScaleFloats(CudaDevice& gpu, size_t count, const float* x, float factor, float* y);
void ScaleFloatsInPlace(CudaDevice& gpu, size_t count, const float* factor, float* x);
void AddFloats(CudaDevice& gpu, size_t count, const float* x, float* y);
void DropoutFactors(CudaDevice& gpu, PhiloxKey key, const PassNumbers* numbers, float probability,
                    size_t count, float* factor);

void MaxPoolForward(CudaDevice& gpu, const Pool2dSpec& spec, uint32_t sample_count, const void* x,
                    void* y, int32_t* argmax);
void MaxPoolBackward(CudaDevice& gpu, const Pool2dSpec& spec, uint32_t sample_count,
                     const int32_t* argmax, const void* dy, void* dx);
void AveragePoolForward(CudaDevice& gpu, const Pool2dSpec& spec, uint32_t sample_count,
                        const void* x, void* y);
void AveragePoolBackward(CudaDevice& gpu, const Pool2dSpec& spec, uint32_t sample_count,
                         const void* dy, void* dx);
void AdaptiveAveragePoolForward(CudaDevice& gpu, const AdaptivePool2dSpec& spec,
                                uint32_t sample_count, const void* x, void* y);
void AdaptiveAveragePoolBackward(CudaDevice& gpu, const AdaptivePool2dSpec& spec,
                                 uint32_t sample_count, const void* dy, void* dx);

// From the host's memory, in the order of launches; valid for what is launched before the next.
DeviceBatch UploadBatch(CudaDevice& gpu, const DeviceBatch& host);
void ImportBatch(CudaDevice& gpu, const DeviceBatch& batch, uint32_t channels, void* x,
                 int32_t* labels);
void ExportFloats(CudaDevice& gpu, size_t count, const void* x, float* host);
void FlattenForward(CudaDevice& gpu, uint32_t sample_count, const SampleShape& shape, const void* x,
                    void* y);
void FlattenBackward(CudaDevice& gpu, uint32_t sample_count, const SampleShape& shape,
                     const void* dy, void* dx);
size_t CrossEntropyScratchBytes(CudaDevice& gpu, uint32_t sample_count_max);
void SoftmaxCrossEntropy(CudaDevice& gpu, const CrossEntropyArgs& args,
                         std::span<std::byte> scratch);
void ScoreToFloats(CudaDevice& gpu, const CrossEntropyScore* score, float* loss_and_correct);

}  // namespace pando::cuda
