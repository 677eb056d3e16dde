// Elements of activations on the GPU, and how kernels load, store and compute with them: always in
// fp32, 16 bytes at a time. The header also has the launch of kernels over arrays, and Map, for
// kernels that compute each element separately.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "common/check.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/ops.h"

namespace pando::cuda {

using Bfloat16 = __nv_bfloat16;
using Float16 = __half;

__device__ inline float ToFloat(float x) { return x; }
__device__ inline float ToFloat(Bfloat16 x) { return __bfloat162float(x); }
__device__ inline float ToFloat(Float16 x) { return __half2float(x); }

template <class T>
__device__ T FromFloat(float x) {
  if constexpr (std::is_same_v<T, Bfloat16>) {
    return __float2bfloat16(x);
  } else if constexpr (std::is_same_v<T, Float16>) {
    return __float2half(x);
  } else {
    return x;
  }
}

// kWidth elements that one instruction loads or stores.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T at[kWidth];
};
template <class T>
inline constexpr int kPackWidth = 16 / static_cast<int>(sizeof(T));

// Checks on the host that an address is a multiple of the access's size; otherwise a GPU faults.
__device__ inline void CheckAligned([[maybe_unused]] const void* address,
                                    [[maybe_unused]] size_t bytes) {
#ifndef __CUDACC__
  PANDO_CHECK(reinterpret_cast<uintptr_t>(address) % bytes == 0);
#endif
}

template <int kWidth, class T>
__device__ Pack<T, kWidth> LoadPack(const T* from) {
  CheckAligned(from, sizeof(Pack<T, kWidth>));
  return *reinterpret_cast<const Pack<T, kWidth>*>(from);
}
template <int kWidth, class T>
__device__ void StorePack(const Pack<T, kWidth>& pack, T* to) {
  CheckAligned(to, sizeof(pack));
  *reinterpret_cast<Pack<T, kWidth>*>(to) = pack;
}
template <int kWidth, class T>
__device__ void LoadFloats(const T* from, float (&to)[kWidth]) {
  const Pack<T, kWidth> pack = LoadPack<kWidth>(from);
  for (int i = 0; i < kWidth; ++i) to[i] = ToFloat(pack.at[i]);
}
template <int kWidth, class T>
__device__ void StoreFloats(const float (&from)[kWidth], T* to) {
  Pack<T, kWidth> pack;
  for (int i = 0; i < kWidth; ++i) pack.at[i] = FromFloat<T>(from[i]);
  StorePack(pack, to);
}
// These two load and store `rest` elements, if these are fewer than kWidth.
template <int kWidth, class T>
__device__ void LoadSome(const T* from, size_t rest, float (&to)[kWidth]) {
  if (rest >= kWidth) return LoadFloats<kWidth>(from, to);
  for (int i = 0; i < kWidth; ++i) to[i] = i < rest ? ToFloat(from[i]) : 0.0f;
}
template <int kWidth, class T>
__device__ void StoreSome(const float (&from)[kWidth], size_t rest, T* to) {
  if (rest >= kWidth) return StoreFloats<kWidth>(from, to);
  for (int i = 0; i < rest; ++i) to[i] = FromFloat<T>(from[i]);
}

__device__ inline float Activate(Activation activation, float x) {
  if (activation != Activation::kNone) x = x < 0.0f ? 0.0f : x;  // NaN stays
  if (activation == Activation::kRelu6) x = x > 6.0f ? 6.0f : x;
  return x;
}
// Returns the gradient of the value that became y.
__device__ inline float PassGradient(Activation activation, float y, float dy) {
  if (activation != Activation::kNone && !(y > 0.0f)) return 0.0f;
  if (activation == Activation::kRelu6 && !(y < 6.0f)) return 0.0f;
  return dy;
}

// Calls f.template operator()<kWidth>() with as many channels as one load takes, or with one if
// that number does not divide the channels.
template <class T, class F>
void WithWidth(uint32_t channels, F&& f) {
  constexpr int kWide = kPackWidth<T>;
  if (channels % kWide == 0) {
    f.template operator()<kWide>();
  } else {
    f.template operator()<1>();
  }
}

// Calls f.template operator()<T>() with the elements' type, of 16 bits.
template <class F>
void WithSmallElement(ElementType type, F&& f) {
  if (type == ElementType::kBfloat16) return f.template operator()<Bfloat16>();
  PANDO_CHECK(type == ElementType::kFloat16);
  f.template operator()<Float16>();
}
// The same for elements of any type.
template <class F>
void WithElement(ElementType type, F&& f) {
  if (type == ElementType::kFloat32) return f.template operator()<float>();
  WithSmallElement(type, f);
}

// Returns an operation's arguments with elements of type T.
template <class T, template <class> class ArgsOf>
ArgsOf<T> Typed(const ArgsOf<void>& args) {
  return std::bit_cast<ArgsOf<T>>(args);
}

// Calls f.template operator()<T, kWidth>() with the elements' type and WithWidth's width.
template <class F>
void WithPacks(ElementType type, uint32_t channels, F&& f) {
  WithElement(type, [&]<class T>() {
    WithWidth<T>(channels, [&]<int kWidth>() { f.template operator()<T, kWidth>(); });
  });
}

inline constexpr uint32_t kMapThreads = 256;

inline uint32_t DivideUp(size_t a, size_t b) { return CheckedCast<uint32_t>((a + b - 1) / b); }

__device__ inline size_t ThreadIndex() { return size_t{blockIdx.x} * blockDim.x + threadIdx.x; }

// Returns as many blocks as give each thread one iteration, but no more than fill the GPU several
// times; further iterations do the rest. No sum depends on this number.
inline dim3 GridSize(CudaDevice& gpu, size_t count, size_t per_thread) {
  constexpr size_t kBlocksPerMultiprocessor = 32;
  const size_t most = kBlocksPerMultiprocessor * gpu.multiprocessor_count();
  return dim3(static_cast<uint32_t>(std::clamp<size_t>(
      (count + kMapThreads * per_thread - 1) / (kMapThreads * per_thread), 1, most)));
}

// Returns a grid with one block row per sample. One thread has `width` of the sample's elements:
// the IndexInSample-th ones, if they exist. They are made of `source_size` elements of another
// array's sample. Kernels count both in 32 bits.
inline dim3 SampleGrid(size_t sample_size, size_t source_size, size_t width,
                       uint32_t sample_count) {
  PANDO_CHECK(std::max(sample_size, source_size) <= UINT32_MAX / 2);
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

// Handles the first `head` elements one by one, and the others kWidth at a time.
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

// Maps arrays that are aligned to kWidth elements. Here and below, y may be one of the inputs.
template <int kWidth, class F, class U, class... T>
void Map(CudaDevice& gpu, size_t count, F f, U* y, const T*... x) {
  LaunchMap<kWidth>(gpu, 0, count, f, y, x...);
}

// Returns how many floats lie before the first address that is aligned to 16 bytes.
inline size_t FloatsToAlignment(const float* floats) {
  return (16 - reinterpret_cast<uintptr_t>(floats) % 16) % 16 / sizeof(float);
}

// For floats that may begin at any float, all at the same distance from 16 bytes.
template <class F, class... Floats>
void MapPackedFloats(CudaDevice& gpu, size_t count, F f, float* y, const Floats*... x) {
  LaunchMap<4>(gpu, std::min(FloatsToAlignment(y), count), count, f, y, x...);
}

// Maps floats at any address.
template <class F, class... Floats>
void MapFloats(CudaDevice& gpu, size_t count, F f, float* y, const Floats*... x) {
  const bool can_pack = ((FloatsToAlignment(x) == FloatsToAlignment(y)) && ...);
  if (!can_pack) return Map<1>(gpu, count, f, y, x...);
  MapPackedFloats(gpu, count, f, y, x...);
}

inline bool IsAligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % 16 == 0;
}

}  // namespace pando::cuda
