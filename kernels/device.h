// Device: where arrays lie and kernels run. Networks and tests open one, allocate on it and pass it
// to every operation of kernels/ops.h, which switches on its kind once: a launch costs no virtual
// call, and a new device is a new case in ops.cc and device.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "common/float_buffer.h"
#include "common/status.h"

namespace pando {

// A GPU's streams and library handles; defined in kernels/cuda alone.
class CudaDevice;

enum class DeviceKind : uint8_t { kCpu, kCuda };

// What activations and their gradients are made of. On the CPU always floats.
enum class ElementType : uint8_t { kFloat32, kBfloat16, kFloat16 };
size_t ElementBytes(ElementType type);

// Threads: a CUDA device is used by one thread at a time; the CPU by any number.
struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  ElementType element = ElementType::kFloat32;
  CudaDevice* cuda = nullptr;  // of kCuda; outlives every use
};

struct CudaOptions {
  int index = 0;  // as CUDA counts
  ElementType element = ElementType::kFloat32;
  bool allow_tf32 = false;              // products of floats with 10 bits of mantissa
  bool allow_nondeterministic = false;  // faster algorithms that may differ from run to run
};

// A GPU in use.  Owns: its streams and handles. Threads: as Device.
class OpenedGpu {
 public:
  explicit OpenedGpu(std::unique_ptr<CudaDevice> gpu);
  ~OpenedGpu();
  OpenedGpu(OpenedGpu&&) noexcept;
  Device device() const;
  // "NVIDIA H200, compute capability 9.0, cuDNN 9.19.0, cuBLASLt 13.0.2": what its bits depend on.
  std::string description() const;
  std::string bus_id() const;  // "0000:17:00.0": where it sits, for kernels/nvml

 private:
  std::unique_ptr<CudaDevice> gpu_;
};

// What the compiler was allowed to use on the CPU: "avx512", "avx2", ...
const char* InstructionSet();
// Whether this build has kernels for GPUs.
bool HasCuda();
// How many GPUs this machine has that this build can use; 0 without a driver.
uint32_t GpuCount();

// For the calling thread. kNotFound: this machine has no such GPU, or this build no CUDA; says what
// to do.
Result<OpenedGpu> OpenCuda(const CudaOptions& options);

// A thread that did not open the GPU calls this before it uses it.
void UseOnThisThread(Device device);

// Of a GPU's memory, as its driver counts, every process together.
struct DeviceRoom {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};
DeviceRoom RoomOf(Device device);  // REQUIRES: a GPU

// Memory of a device, aligned to 256 bytes, never paged out on a GPU. What it holds at first means
// nothing.  Owns: it.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(Device device, size_t size_bytes);
  std::byte* data() const { return memory_.get(); }
  size_t size_bytes() const { return size_bytes_; }

 private:
  struct Free {
    Device device;
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  size_t size_bytes_ = 0;
};

// From the host's memory to the device's, in the order of launches; `host` is free when it returns.
void Upload(Device device, std::span<const std::byte> host, void* to);
// From the device's memory to the host's, after what has been launched; waits for it.
void Download(Device device, const void* from, std::span<std::byte> host);
// Waits for all that has been launched.
void Synchronize(Device device);

// Flat vectors: zeroed ones in the device's memory, and in memory of the host that a GPU reads and
// writes by itself, which holds anything at first. They may be freed on any thread.
FloatBuffer DeviceFloats(Device device, size_t float_count);
FloatBuffer PinnedFloats(Device device, size_t float_count);

// Launches that were recorded once, to be launched again as one: what a small network's many short
// kernels cost is mostly their launches. Threads: as Device. Owns: the recording.
class LaunchGraph {
 public:
  // `launches` calls operations alone, each of which has been called before with these shapes; none
  // of them is run. What they read and write are addresses: the values are those of each launch.
  LaunchGraph(Device device, const std::function<void()>& launches);
  ~LaunchGraph();
  LaunchGraph(LaunchGraph&&) noexcept;
  void Launch() const;

 private:
  struct Recording;  // defined in kernels/cuda alone
  std::unique_ptr<Recording> recording_;
};

}  // namespace pando
