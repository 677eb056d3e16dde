// CUDA's runtime on the host, as far as kernels/cuda uses it: that folder's sources are compiled
// with this in place of NVIDIA's header, and the tests of kernels and networks run on machines
// without a GPU. It checks the results of kernels, not their speed or races between warps: the
// threads of a block take turns, and blocks run one after another.
//
// Streams are as late as allowed: work runs when a thread waits for it or, drawn from
// CUDA_ON_HOST_SEED, a little earlier. So a missing wait between two streams, or between a stream
// and the host, changes the results.
//
// Threads: any. Names are NVIDIA's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <tuple>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __shared__ static  // blocks come one after the other
#define __launch_bounds__(...)

using std::max;
using std::min;

// ---- kernels ------------------------------------------------------------------------------------

// NOLINTBEGIN(readability-identifier-naming,google-explicit-constructor): NVIDIA's names
struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};
struct uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
struct dim3 {
  dim3(unsigned x_size = 1, unsigned y_size = 1, unsigned z_size = 1)
      : x(x_size), y(y_size), z(z_size) {}
  unsigned x, y, z;
};

// The current thread's.
inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

// Every thread of the block comes here before any goes on; one that has returned counts as here.
void __syncthreads();

namespace cuda_on_host {

struct Argument {
  const void* value;
  size_t size_bytes;
  size_t alignment;
};
// Calls `on_host` for every thread of the grid, or interprets the PTX of `function` (tests/ptx).
void RunKernel(const void* function, dim3 grid_size, dim3 block_size,
               std::initializer_list<Argument> arguments, const std::function<void()>& on_host);
void RunGrid(dim3 grid_size, dim3 block_size, const std::function<void()>& kernel);
// Chooses the only block of each grid that runs, in C++. Empty: all run. For arrays so large that
// not all can.
inline std::function<dim3(dim3 grid_size)> choose_block;
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

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNotReady = 600,
  cudaErrorNotSupported = 801
};
inline const char* cudaGetErrorString(cudaError_t) { return "an error of the host in its place"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
using cudaGraph_t = struct CUgraph_st*;
using cudaGraphExec_t = struct CUgraphExec_st*;
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
inline constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2;

// 2 GiB, or CUDA_ON_HOST_MEMORY_MB.
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes);
cudaError_t cudaMalloc(void** memory, size_t size_bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMallocHost(void** memory, size_t size_bytes);
cudaError_t cudaFreeHost(void* memory);
inline constexpr unsigned cudaHostRegisterPortable = 1, cudaHostRegisterReadOnly = 8;
// Refuses read-only memory where CUDA_ON_HOST_READ_ONLY is 0, as some machines do.
cudaError_t cudaHostRegister(void* memory, size_t size_bytes, unsigned flags);
cudaError_t cudaHostUnregister(void* memory);
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost };
struct cudaPointerAttributes {
  cudaMemoryType type;
};
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory);
cudaError_t cudaMallocManaged(void** memory, size_t size_bytes);
// From and to pinned memory when the stream comes to it; from other memory at once.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size_bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int byte, size_t size_bytes, cudaStream_t stream);
cudaError_t cudaGetDeviceCount(int* count);  // CUDA_ON_HOST_GPUS, or 1
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int major, minor;
};
// The device has compute capability CUDA_ON_HOST_CAPABILITY, or 90.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  return *value = 2, cudaSuccess;
}
inline cudaError_t cudaDeviceGetPCIBusId(char* text, int, int) { return *text = 0, cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

namespace cuda_on_host {

// Whether this thread captures: CUDA refuses then what may wait or allocate.
bool IsCapturing();
// Puts work on a stream.
void Enqueue(cudaStream_t stream, std::function<void()> work);

}  // namespace cuda_on_host

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
  cuda_on_host::Enqueue(
      config->stream, [grid_size = config->gridDim, block_size = config->blockDim, kernel, values] {
        std::apply(
            [&](const Parameters&... each) {
              cuda_on_host::RunKernel(reinterpret_cast<const void*>(kernel), grid_size, block_size,
                                      {{&each, sizeof(each), alignof(Parameters)}...},
                                      [&] { kernel(each...); });
            },
            values);
      });
  return cudaSuccess;
}
// NOLINTEND(readability-identifier-naming,google-explicit-constructor)
