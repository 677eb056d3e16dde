// Device: a place for arrays and kernels. Networks and tests open one (opened_gpu.h), allocate on
// it and pass it to every operation of kernels/ops.h, which switches on its kind once. So a launch
// costs no virtual call, and a new device is a new case in Dispatch (kernels/cuda/cuda_ops.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/float_buffer.h"

namespace pando {

// A GPU's streams and library handles; only kernels/cuda defines it.
class CudaDevice;

enum class DeviceKind : uint8_t { kCpu, kCuda };

// The type of activations and their gradients. On the CPU they are always floats.
enum class ElementType : uint8_t { kFloat32, kBfloat16, kFloat16 };
size_t ElementBytes(ElementType type);

// Threads: a CUDA device is used by one thread at a time; the CPU by any number.
struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  ElementType element = ElementType::kFloat32;
  CudaDevice* cuda = nullptr;  // for kCuda; outlives every use
};

// The instruction set for which the CPU's kernels are compiled: "x86-64-v4". Bits differ by it.
const char* InstructionSet();
// Whether this build has kernels for GPUs.
bool HasCuda();
// The number of this machine's GPUs that this build can use; 0 without a driver.
uint32_t GpuCount();

// A thread that did not open the GPU calls this before it uses it.
void UseOnThisThread(Device device);

// A GPU's memory as its driver counts it, for all processes together.
struct DeviceRoom {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};
DeviceRoom ReadRoom(Device device);  // REQUIRES: a GPU

// Copies from the host's memory to the device's, in the order of launches. `host` may be reused
// when this returns.
void Upload(Device device, std::span<const std::byte> host, void* to);
// Copies from the device's memory to the host's after all earlier launches; waits for them.
void Download(Device device, const void* from, std::span<std::byte> host);
// Waits for all that has been launched.
void Synchronize(Device device);

// Makes flat vectors: zeroed ones in the device's memory, and undefined ones in host memory that a
// GPU can access directly. They may be freed on any thread.
FloatBuffer DeviceFloats(Device device, size_t float_count);
FloatBuffer PinnedFloats(Device device, size_t float_count);
// Lets a GPU access existing memory of the host, until the result is destroyed, on any thread.
// Null: the driver refuses, and copies go as for other memory, with the same result. The memory
// shares no page with other pinned memory, and outlives the result.
enum class HostPin : uint8_t { kReadWrite, kReadOnly };  // how the memory is mapped here
std::shared_ptr<const void> PinHost(Device device, std::span<const std::byte> memory, HostPin how);
// Whether the GPU can access all of it directly. REQUIRES: a GPU. Any thread may call both.
bool IsPinned(Device device, std::span<const std::byte> memory);

}  // namespace pando
