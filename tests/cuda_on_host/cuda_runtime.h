// CUDA's runtime on the host, as far as kernels/cuda uses it: that folder's sources are compiled
// with this in place of NVIDIA's header, and the tests of kernels and networks run on machines
// without a GPU. Says whether kernels compute what they should, not how fast, and nothing of races
// between warps: the threads of a block take turns, and blocks come one after the other.
//
// Threads: one. Names are NVIDIA's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __shared__ static  // blocks come one after the other

using std::max;
using std::min;

// ---- kernels ------------------------------------------------------------------------------------

struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};
struct uint4 {
  unsigned x, y, z, w;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
struct dim3 {
  dim3(unsigned x_size = 1, unsigned y_size = 1, unsigned z_size = 1)
      : x(x_size), y(y_size), z(z_size) {}
  unsigned x, y, z;
};

// Of the thread at hand.
inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

// Every thread of the block comes here before any goes on; one that has returned counts as here.
void __syncthreads();

namespace cuda_on_host {

// Calls `kernel` for every thread of the grid.
void RunGrid(dim3 grid_size, dim3 block_size, const std::function<void()>& kernel);
// The 64 bits that the lane of this thread's warp gave in its own call. All lanes call.
uint64_t Exchange(uint64_t bits, unsigned from_lane);
unsigned LaneOfThread();

template <class T>
T ExchangeValue(T value, unsigned from_lane) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  bits = Exchange(bits, from_lane);
  __builtin_memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace cuda_on_host

template <class T>
T __shfl_xor_sync(unsigned, T value, unsigned lane_mask) {
  return cuda_on_host::ExchangeValue(value, cuda_on_host::LaneOfThread() ^ lane_mask);
}

// ---- the runtime --------------------------------------------------------------------------------

enum cudaError_t { cudaSuccess = 0 };
inline const char* cudaGetErrorString(cudaError_t) { return "no error"; }

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount };
inline constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2;

cudaError_t cudaMalloc(void** memory, size_t size_bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size_bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
inline cudaError_t cudaMallocManaged(void** memory, size_t size_bytes) {
  return cudaMalloc(memory, size_bytes);
}
inline cudaError_t cudaMallocHost(void** memory, size_t size_bytes) {
  return cudaMalloc(memory, size_bytes);
}
inline cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }
inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  return *value = 2, cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned) { return cudaSuccess; }
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned) { return cudaSuccess; }
inline cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  const std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
  cuda_on_host::RunGrid(config->gridDim, config->blockDim, [&] { std::apply(kernel, values); });
  return cudaSuccess;
}
