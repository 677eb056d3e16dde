#include "kernels/device.h"

#include <cstdlib>
#include <cstring>

#include "common/check.h"
#include "kernels/cuda/cuda_ops.h"

namespace pando {
namespace {

constexpr size_t kAlignmentBytes = 256;  // as cudaMalloc's

std::byte* AllocateOnHost(size_t size_bytes) {
  const size_t rounded = (size_bytes / kAlignmentBytes + 1) * kAlignmentBytes;
  void* memory = std::aligned_alloc(kAlignmentBytes, rounded);
  PANDO_CHECK(memory != nullptr);
  std::memset(memory, 0, rounded);  // so that the pages exist and are not only reserved
  return static_cast<std::byte*>(memory);
}

bool IsCuda(Device device) { return device.kind == DeviceKind::kCuda; }

}  // namespace

const char* InstructionSet() {
#if defined(__AVX512F__)
  return "avx512";
#elif defined(__AVX2__)
  return "avx2";
#elif defined(__SSE2__)
  return "sse2";
#else
  return "generic";
#endif
}

void UseOnThisThread(Device device) {
  if constexpr (kHasCuda) {
    if (IsCuda(device)) cuda::UseOnThisThread(*device.cuda);
  }
}

DeviceRoom RoomOf(Device device) {
  PANDO_CHECK(IsCuda(device));
  if constexpr (kHasCuda) return cuda::RoomOf(*device.cuda);
  return {};
}

FloatBuffer DeviceFloats(Device device, size_t float_count) {
  if constexpr (kHasCuda) {
    if (IsCuda(device)) return {cuda::AllocateFloats(*device.cuda, float_count), float_count};
  }
  return FloatBuffer(float_count);
}

FloatBuffer PinnedFloats(Device device, size_t float_count) {
  if constexpr (kHasCuda) {
    if (IsCuda(device)) return {cuda::AllocatePinnedFloats(*device.cuda, float_count), float_count};
  }
  return FloatBuffer(float_count);
}

size_t ElementBytes(ElementType type) { return type == ElementType::kFloat32 ? 4 : 2; }

DeviceMemory::DeviceMemory(Device device, size_t size_bytes)
    : memory_(nullptr, Free{device}), size_bytes_(size_bytes) {
  if constexpr (kHasCuda) {
    if (IsCuda(device)) memory_.reset(cuda::Allocate(*device.cuda, size_bytes));
  }
  if (!IsCuda(device)) memory_.reset(AllocateOnHost(size_bytes));
}

void DeviceMemory::Free::operator()(std::byte* memory) const {
  if constexpr (kHasCuda) {
    if (IsCuda(device)) return cuda::Free(*device.cuda, memory);
  }
  std::free(memory);
}

void Upload(Device device, std::span<const std::byte> host, void* to) {
  if constexpr (kHasCuda) {
    if (IsCuda(device)) return cuda::Upload(*device.cuda, host, to);
  }
  std::memcpy(to, host.data(), host.size());
}

void Download(Device device, const void* from, std::span<std::byte> host) {
  if constexpr (kHasCuda) {
    if (IsCuda(device)) return cuda::Download(*device.cuda, from, host);
  }
  std::memcpy(host.data(), from, host.size());
}

void Synchronize(Device device) {
  if constexpr (kHasCuda) {
    if (IsCuda(device)) cuda::Synchronize(*device.cuda);
  }
}

}  // namespace pando
