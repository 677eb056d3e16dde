// Elements of activations on the GPU, and how kernels load, store and compute with them: always in
// fp32, 16 bytes at a time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "common/check.h"
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

// A GPU faults if an address is not a multiple of the access's size; on the host this checks it.
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
// The same for `rest` elements, if these are fewer.
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
// The gradient of the value that became y.
__device__ inline float PassGradient(Activation activation, float y, float dy) {
  if (activation != Activation::kNone && !(y > 0.0f)) return 0.0f;
  if (activation == Activation::kRelu6 && !(y < 6.0f)) return 0.0f;
  return dy;
}

// Calls f.template operator()<kWidth>() with as many channels as one load takes, or one if that
// does not divide the channels.
template <class T, class F>
void WithWidth(uint32_t channels, F&& f) {
  constexpr int kWide = kPackWidth<T>;
  if (channels % kWide == 0) {
    f.template operator()<kWide>();
  } else {
    f.template operator()<1>();
  }
}

// Calls f.template operator()<T>() with the elements' type.
template <class F>
void WithElement(ElementType type, F&& f) {
  switch (type) {
    case ElementType::kFloat32:
      return f.template operator()<float>();
    case ElementType::kBfloat16:
      return f.template operator()<Bfloat16>();
    case ElementType::kFloat16:
      return f.template operator()<Float16>();
  }
  PANDO_CHECK(false);
}

// An operation's arguments, whose elements have this type.
template <class T, template <class> class ArgsOf>
ArgsOf<T> Typed(const ArgsOf<void>& args) {
  return std::bit_cast<ArgsOf<T>>(args);
}

// Calls f.template operator()<T, kWidth>() with both.
template <class F>
void WithPacks(ElementType type, uint32_t channels, F&& f) {
  WithElement(type, [&]<class T>() {
    WithWidth<T>(channels, [&]<int kWidth>() { f.template operator()<T, kWidth>(); });
  });
}

}  // namespace pando::cuda
