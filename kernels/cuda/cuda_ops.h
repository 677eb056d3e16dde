// CUDA's versions of the operations of kernels/ops.h, which documents them, and of the memory of
// kernels/device.h. kernels/ops.cc and kernels/device.cc call them after they have checked the
// shapes. This header includes no CUDA: a build without CUDA compiles it and links none of these.
#pragma once

#include "common/check.h"
#include "kernels/ops.h"
#include "kernels/payload_codec.h"

#ifndef PANDO_CUDA
#define PANDO_CUDA 0
#endif

namespace pando {

inline constexpr bool kHasCuda = PANDO_CUDA;  // whether this build has CUDA

// Calls the function for the device's kind: this is the only switch on it. In a build without CUDA
// `on_cuda` is never instantiated, so that nothing of kernels/cuda is linked.
template <class OnCpu, class OnCuda>
auto Dispatch(Device device, const OnCpu& on_cpu, const OnCuda& on_cuda) {
  if constexpr (kHasCuda) {
    if (device.kind == DeviceKind::kCuda) return on_cuda(*device.cuda);
  }
  PANDO_CHECK(device.kind == DeviceKind::kCpu);
  return on_cpu();
}

}  // namespace pando

namespace pando::cuda {

// An operation's type, with the GPU instead of the device.
template <class Operation>
struct OnGpuType;
template <class Result, class... Parameters>
struct OnGpuType<Result(Device, Parameters...)> {
  using Type = Result(CudaDevice& gpu, Parameters...);
};
template <class Operation>
using OnGpu = typename OnGpuType<Operation>::Type;

std::byte* Allocate(CudaDevice& gpu, size_t size_bytes);
void Free(CudaDevice& gpu, std::byte* memory);
FloatBuffer::Memory AllocateFloats(CudaDevice& gpu, size_t float_count);
FloatBuffer::Memory AllocatePinnedFloats(CudaDevice& gpu, size_t float_count);
OnGpu<decltype(pando::Upload)> Upload;
OnGpu<decltype(pando::Download)> Download;
OnGpu<decltype(pando::Synchronize)> Synchronize;
OnGpu<decltype(pando::UseOnThisThread)> UseOnThisThread;
OnGpu<decltype(pando::ReadRoom)> ReadRoom;
OnGpu<decltype(pando::PinHost)> PinHost;
OnGpu<decltype(pando::IsPinned)> IsPinned;
OnGpu<decltype(pando::EncodeFloats)> EncodeFloats;
OnGpu<decltype(pando::DecodeFloats)> DecodeFloats;

#define PANDO_DECLARE(Name, ...) OnGpu<decltype(pando::Name)> Name;
PANDO_OPERATIONS_WITH_ARGS(PANDO_DECLARE)
PANDO_OTHER_OPERATIONS(PANDO_DECLARE)
#undef PANDO_DECLARE
#define PANDO_DECLARE(Operation) \
  OnGpu<decltype(pando::Operation##ScratchBytes)> Operation##ScratchBytes;
PANDO_OPERATIONS_WITH_SCRATCH(PANDO_DECLARE)
#undef PANDO_DECLARE
// Copies a batch from the host, in launch order. It is valid until the next upload's launches.
DeviceBatch UploadBatch(CudaDevice& gpu, const DeviceBatch& host);
void ImportBatch(CudaDevice& gpu, const DeviceBatch& batch, uint32_t channels,
                 uint32_t stored_channels, void* x, int32_t* labels);

}  // namespace pando::cuda
