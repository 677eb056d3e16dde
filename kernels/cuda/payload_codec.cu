// Payloads of gradients and parameters, encoded as in plan/shard_codec.cc. Each of its cases is
// repeated here, with NaNs, since a worker's GPU and a server's CPU read each other's bits.
#include <cuda_fp16.h>

#include <bit>
#include <cstdint>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/map.h"

namespace pando::cuda {
namespace {

constexpr uint32_t kBlockFloats = 256;  // they share a scale, and have a block of as many threads
constexpr uint32_t kInfinityBits = 0x7f800000;
constexpr uint32_t kNanBits = 0x7fc00000;

__device__ uint32_t Bits(float x) { return std::bit_cast<uint32_t>(x); }
__device__ float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }
__device__ uint32_t MagnitudeBits(float x) { return Bits(x) & 0x7fffffff; }

// A NaN keeps its sign and the upper bits of its mantissa, and becomes a quiet one.
struct Fp16 {
  static __device__ uint16_t Encode(float x) {
    if (MagnitudeBits(x) <= kInfinityBits) return std::bit_cast<uint16_t>(__float2half(x));
    return static_cast<uint16_t>((Bits(x) >> 16 & 0x8000) | 0x7e00 | (Bits(x) >> 13 & 0x3ff));
  }
  static __device__ float Decode(uint16_t half) {
    if ((half & 0x7fff) <= 0x7c00) return __half2float(std::bit_cast<__half>(half));
    return FromBits((half & 0x8000u) << 16 | kNanBits | (half & 0x3ffu) << 13);
  }
};

struct Bf16 {
  static __device__ uint16_t Encode(float x) {
    const uint32_t bits = Bits(x);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return static_cast<uint16_t>(MagnitudeBits(x) > kInfinityBits ? bits >> 16 | 0x40 : rounded);
  }
  static __device__ float Decode(uint16_t half) { return FromBits(uint32_t{half} << 16); }
};

template <class Code>
__global__ void EncodeHalves(size_t count, const float* floats, uint16_t* codes) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = ThreadIndex(); i < count; i += stride) codes[i] = Code::Encode(floats[i]);
}

template <class Code>
__global__ void DecodeHalves(size_t count, const uint16_t* codes, float* floats) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = ThreadIndex(); i < count; i += stride) floats[i] = Code::Decode(codes[i]);
}

// Each block of threads encodes one block of floats.
__global__ void EncodeInt8(size_t count, const float* floats, float* scales, int8_t* codes) {
  constexpr float kCodeMax = 127.0f;
  constexpr float kSmallestScaled = 1e-35f;  // below it a quotient is not a normal float
  __shared__ uint32_t largest_bits[kBlockFloats];
  const uint32_t self = threadIdx.x;
  const size_t i = size_t{blockIdx.x} * kBlockFloats + self;
  const float x = i < count ? floats[i] : 0.0f;
  largest_bits[self] = MagnitudeBits(x);
  for (uint32_t half = kBlockFloats / 2; half > 0; half /= 2) {
    __syncthreads();
    if (self < half) largest_bits[self] = max(largest_bits[self], largest_bits[self + half]);
  }
  __syncthreads();
  const float largest = FromBits(largest_bits[0]);
  const bool is_finite = largest_bits[0] < kInfinityBits;
  const bool is_scaled = is_finite && largest >= kSmallestScaled;
  if (self == 0)
    scales[blockIdx.x] = is_scaled ? largest / kCodeMax : FromBits(is_finite ? 0 : kNanBits);
  if (i >= count) return;
  const float inverse = is_scaled ? kCodeMax / largest : 0.0f;
  codes[i] = is_scaled ? static_cast<int8_t>(min(kCodeMax, rintf(x * inverse))) : int8_t{0};
}

// The product of a NaN has the NaN's bits on a CPU, and others on a GPU.
__device__ float Scale(float scale, int8_t code) {
  if (MagnitudeBits(scale) > kInfinityBits) return FromBits(Bits(scale) | 0x400000);
  return scale * static_cast<float>(code);
}

__global__ void DecodeInt8(size_t count, const float* scales, const int8_t* codes, float* floats) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = ThreadIndex(); i < count; i += stride)
    floats[i] = Scale(scales[i / kBlockFloats], codes[i]);
}

void CopyFloats(CudaDevice& gpu, size_t count, const float* from, float* to) {
  PANDO_CUDA_CHECK(
      cudaMemcpyAsync(to, from, count * sizeof(float), cudaMemcpyDeviceToDevice, gpu.stream()));
}

template <class... Parameters, class... Arguments>
void LaunchOver(CudaDevice& gpu, size_t count, void (*kernel)(size_t, Parameters...),
                Arguments... arguments) {
  Launch(gpu, GridSize(gpu, count, 1), dim3(kMapThreads), kernel, count, arguments...);
}

}  // namespace

void EncodeFloats(CudaDevice& gpu, const float* floats, const CodedFloats& to) {
  if (to.count == 0) return;  // a grid has at least one block
  auto* halves = reinterpret_cast<uint16_t*>(to.codes);
  switch (to.code) {
    case FloatCode::kExact:
      return CopyFloats(gpu, to.count, floats, to.heads);
    case FloatCode::kFp16:
      return LaunchOver(gpu, to.count, EncodeHalves<Fp16>, floats, halves);
    case FloatCode::kBf16:
      return LaunchOver(gpu, to.count, EncodeHalves<Bf16>, floats, halves);
    case FloatCode::kInt8:
      return Launch(gpu, dim3(DivideUp(to.count, kBlockFloats)), dim3(kBlockFloats), EncodeInt8,
                    to.count, floats, to.heads, reinterpret_cast<int8_t*>(to.codes));
  }
  PANDO_CHECK(false);
}

void DecodeFloats(CudaDevice& gpu, const CodedFloats& from, float* floats) {
  if (from.count == 0) return;
  const auto* halves = reinterpret_cast<const uint16_t*>(from.codes);
  switch (from.code) {
    case FloatCode::kExact:
      return CopyFloats(gpu, from.count, from.heads, floats);
    case FloatCode::kFp16:
      return LaunchOver(gpu, from.count, DecodeHalves<Fp16>, halves, floats);
    case FloatCode::kBf16:
      return LaunchOver(gpu, from.count, DecodeHalves<Bf16>, halves, floats);
    case FloatCode::kInt8:
      return LaunchOver(gpu, from.count, DecodeInt8, from.heads,
                        reinterpret_cast<const int8_t*>(from.codes), floats);
  }
  PANDO_CHECK(false);
}

}  // namespace pando::cuda
