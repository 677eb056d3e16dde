// CUDA's versions of the operations of kernels/ops.h, which documents them, and of the memory of
// kernels/device.h. Called by kernels/ops.cc and kernels/device.cc, which have checked the shapes.
// It includes nothing of CUDA: a build without CUDA compiles this header and links none of these.
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

#define PANDO_DECLARE(Name, Spec)                                      \
  void Name(CudaDevice& gpu, const Spec& spec, const Name##Args& args, \
            std::span<std::byte> scratch);
PANDO_OPERATIONS(PANDO_DECLARE)
#undef PANDO_DECLARE

#define PANDO_DECLARE(Operation)                                               \
  size_t Operation##ScratchBytes(CudaDevice& gpu, const Operation##Spec& spec, \
                                 uint32_t sample_count_max);
PANDO_OPERATIONS_WITH_SCRATCH(PANDO_DECLARE)
#undef PANDO_DECLARE
size_t BatchNormScratchBytes(CudaDevice& gpu, const BatchNormSpec& spec);

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

// From the host's memory, in the order of launches. Valid for launches before the next upload.
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
