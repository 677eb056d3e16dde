#include "kernels/device_memory.h"

#include <cstdlib>
#include <cstring>

#include "common/check.h"
#include "kernels/cpu/cpu_ops.h"
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

}  // namespace

const char* InstructionSet() { return cpu::ChosenOperations().InstructionSet(); }

void UseOnThisThread(Device device) {
  Dispatch(
      device, [] {}, [](auto& gpu) { cuda::UseOnThisThread(gpu); });
}

DeviceRoom ReadRoom(Device device) {
  PANDO_CHECK(device.kind == DeviceKind::kCuda);
  return Dispatch(
      device, [] { return DeviceRoom(); }, [](auto& gpu) { return cuda::ReadRoom(gpu); });
}

FloatBuffer DeviceFloats(Device device, size_t float_count) {
  return Dispatch(
      device, [&] { return FloatBuffer(float_count); },
      [&](auto& gpu) { return FloatBuffer(cuda::AllocateFloats(gpu, float_count), float_count); });
}

FloatBuffer PinnedFloats(Device device, size_t float_count) {
  return Dispatch(
      device, [&] { return FloatBuffer(float_count); },
      [&](auto& gpu) {
        return FloatBuffer(cuda::AllocatePinnedFloats(gpu, float_count), float_count);
      });
}

std::shared_ptr<const void> PinHost(Device device, std::span<const std::byte> memory, HostPin how) {
  return Dispatch(
      device, [] { return std::shared_ptr<const void>(); },
      [&](auto& gpu) { return cuda::PinHost(gpu, memory, how); });
}

bool IsPinned(Device device, std::span<const std::byte> memory) {
  PANDO_CHECK(device.kind == DeviceKind::kCuda);
  return Dispatch(
      device, [] { return false; }, [&](auto& gpu) { return cuda::IsPinned(gpu, memory); });
}

size_t ElementBytes(ElementType type) { return type == ElementType::kFloat32 ? 4 : 2; }

DeviceMemory::DeviceMemory(Device device, size_t size_bytes)
    : memory_(Dispatch(
                  device, [&] { return AllocateOnHost(size_bytes); },
                  [&](auto& gpu) { return cuda::Allocate(gpu, size_bytes); }),
              Free{device}),
      size_bytes_(size_bytes) {}

void DeviceMemory::Free::operator()(std::byte* memory) const {
  Dispatch(
      device, [&] { std::free(memory); }, [&](auto& gpu) { cuda::Free(gpu, memory); });
}

void Upload(Device device, std::span<const std::byte> host, void* to) {
  Dispatch(
      device, [&] { std::memcpy(to, host.data(), host.size()); },
      [&](auto& gpu) { cuda::Upload(gpu, host, to); });
}

void Download(Device device, const void* from, std::span<std::byte> host) {
  Dispatch(
      device, [&] { std::memcpy(host.data(), from, host.size()); },
      [&](auto& gpu) { cuda::Download(gpu, from, host); });
}

void Synchronize(Device device) {
  Dispatch(
      device, [] {}, [](auto& gpu) { cuda::Synchronize(gpu); });
}

}  // namespace pando
