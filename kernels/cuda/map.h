// Map: y[i] = f(x0[i], x1[i], ...) over arrays of elements, 16 bytes per thread and iteration.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/element.h"

namespace pando::cuda {

inline constexpr uint32_t kMapThreads = 256;

inline uint32_t DivideUp(size_t a, size_t b) { return static_cast<uint32_t>((a + b - 1) / b); }

__device__ inline size_t ThreadIndex() { return size_t{blockIdx.x} * blockDim.x + threadIdx.x; }

// As many blocks as give each thread one iteration, but no more than fill the GPU several times;
// further iterations do the rest. No sum depends on this number.
inline dim3 GridSize(CudaDevice& gpu, size_t count, size_t per_thread) {
  constexpr size_t kBlocksPerMultiprocessor = 32;
  const size_t most = kBlocksPerMultiprocessor * gpu.multiprocessor_count();
  return dim3(static_cast<uint32_t>(std::clamp<size_t>(
      (count + kMapThreads * per_thread - 1) / (kMapThreads * per_thread), 1, most)));
}

// One block row per sample; one thread has `width` of its elements.
inline dim3 SampleGrid(size_t sample_size, size_t width, uint32_t sample_count) {
  PANDO_CHECK(sample_size <= UINT32_MAX / 2 && sample_count <= 65535);
  return dim3(DivideUp(sample_size / width, kMapThreads), sample_count);
}

template <class T, int kInputs>
struct Inputs {
  const T* at[kInputs];
};

template <int kWidth, class T, class U, int kInputs, class F>
__global__ void MapKernel(size_t count, Inputs<T, kInputs> inputs, U* y, F f) {
  const size_t step = size_t{gridDim.x} * blockDim.x * kWidth;
  for (size_t i = ThreadIndex() * kWidth; i < count; i += step) {
    float x[kInputs][kWidth], result[kWidth];
    for (int k = 0; k < kInputs; ++k) LoadSome<kWidth>(inputs.at[k] + i, count - i, x[k]);
    for (int lane = 0; lane < kWidth; ++lane) {
      float values[kInputs];
      for (int k = 0; k < kInputs; ++k) values[k] = x[k][lane];
      result[lane] = f(values);
    }
    StoreSome<kWidth>(result, count - i, y + i);
  }
}

// Arrays aligned to 16 bytes; y may be one of the inputs.
template <class T, int kInputs, class U, class F>
void Map(CudaDevice& gpu, size_t count, Inputs<T, kInputs> inputs, U* y, F f) {
  constexpr int kWidth = sizeof(T) > sizeof(U) ? kPackWidth<T> : kPackWidth<U>;
  Launch(gpu, GridSize(gpu, count, kWidth), dim3(kMapThreads), MapKernel<kWidth, T, U, kInputs, F>,
         count, inputs, y, f);
}

inline bool IsAligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % 16 == 0;
}

// Arrays at any address.
template <int kInputs, class T, class U, class F>
void MapUnaligned(CudaDevice& gpu, size_t count, Inputs<T, kInputs> inputs, U* y, F f) {
  Launch(gpu, GridSize(gpu, count, 1), dim3(kMapThreads), MapKernel<1, T, U, kInputs, F>, count,
         inputs, y, f);
}

}  // namespace pando::cuda
