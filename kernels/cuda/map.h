// How kernels over arrays are launched; and Map, for those that compute each element alone.
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

// One block row per sample; one thread has `width` of its elements: the IndexInSample-th ones, if
// they exist.
inline dim3 SampleGrid(size_t sample_size, size_t width, uint32_t sample_count) {
  PANDO_CHECK(sample_size <= UINT32_MAX / 2 && sample_count <= 65535);
  return dim3(DivideUp(sample_size / width, kMapThreads), sample_count);
}
__device__ inline uint32_t IndexInSample() { return blockIdx.x * blockDim.x + threadIdx.x; }

// y[i] = f({x0[i], x1[i], ...}) for kWidth elements, or `rest`, if these are fewer.
template <int kWidth, class F, class U, class... T>
__device__ void MapPack(size_t rest, F f, U* y, const T*... x) {
  constexpr int kInputs = sizeof...(T);
  float inputs[kInputs][kWidth], results[kWidth];
  int next = 0;
  (LoadSome<kWidth>(x, rest, inputs[next++]), ...);
  for (int lane = 0; lane < kWidth; ++lane) {
    float values[kInputs];
    for (int k = 0; k < kInputs; ++k) values[k] = inputs[k][lane];
    results[lane] = f(values);
  }
  StoreSome<kWidth>(results, rest, y);
}

// The first `head` elements one by one, the others kWidth at a time.
template <int kWidth, class F, class U, class... T>
__global__ void MapKernel(size_t head, size_t count, F f, U* y, const T*... x) {
  const size_t self = ThreadIndex(), step = size_t{gridDim.x} * blockDim.x * kWidth;
  if (self < head) MapPack<1>(1, f, y + self, (x + self)...);
  for (size_t i = head + self * kWidth; i < count; i += step)
    MapPack<kWidth>(count - i, f, y + i, (x + i)...);
}

template <int kWidth, class F, class U, class... T>
void LaunchMap(CudaDevice& gpu, size_t head, size_t count, F f, U* y, const T*... x) {
  void (*kernel)(size_t, size_t, F, U*, const T*...) = MapKernel<kWidth, F, U, T...>;
  Launch(gpu, GridSize(gpu, count, kWidth), dim3(kMapThreads), kernel, head, count, f, y, x...);
}

// For arrays that are aligned to kWidth elements. y may be one of the inputs; below too.
template <int kWidth, class F, class U, class... T>
void Map(CudaDevice& gpu, size_t count, F f, U* y, const T*... x) {
  LaunchMap<kWidth>(gpu, 0, count, f, y, x...);
}

// For floats at any address.
template <class F, class... Floats>
void MapFloats(CudaDevice& gpu, size_t count, F f, float* y, const Floats*... x) {
  const auto to_alignment = [](const float* floats) {
    return (16 - reinterpret_cast<uintptr_t>(floats) % 16) % 16 / sizeof(float);
  };
  const size_t head = to_alignment(y);
  const bool can_pack = ((to_alignment(x) == head) && ...);
  if (!can_pack) return Map<1>(gpu, count, f, y, x...);
  LaunchMap<4>(gpu, std::min(head, count), count, f, y, x...);
}

inline bool IsAligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % 16 == 0;
}

}  // namespace pando::cuda
