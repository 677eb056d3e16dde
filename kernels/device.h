// Device: a place for arrays and kernels. Networks and tests open one, allocate on it and pass it
// to every operation of kernels/ops.h, which switches on its kind once. So a launch costs no
// virtual call, and a new device is a new case in Dispatch (kernels/cuda/cuda_ops.h).
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

// A line for the log, written once per problem when it is first computed.
struct EngineNote {
  std::string text;
  bool is_fallback = false;  // no engine exists: our own kernel computes it, slowly
};
using OnEngineNote = std::function<void(const EngineNote&)>;

struct CudaOptions {
  int index = 0;  // in CUDA's order
  ElementType element = ElementType::kFloat32;
  bool allow_tf32 = false;              // products of floats with a mantissa of 10 bits
  bool allow_nondeterministic = false;  // faster algorithms that may differ between runs
  OnEngineNote on_engine = nullptr;     // for each convolution; called by the thread that computes
};

// A GPU in use. Owns: its streams and handles. Threads: as for Device.
class OpenedGpu {
 public:
  explicit OpenedGpu(std::unique_ptr<CudaDevice> gpu);
  ~OpenedGpu();
  OpenedGpu(OpenedGpu&&) noexcept;
  Device device() const;
  // "NVIDIA H200, compute capability 9.0, cuDNN 9.19.0, cuBLASLt 13.0.2": everything that
  // determines its bits.
  std::string description() const;
  std::string bus_id() const;  // "0000:17:00.0": its place on the bus, for kernels/nvml

 private:
  std::unique_ptr<CudaDevice> gpu_;
};

// The instruction set for which the CPU's kernels are compiled: "x86-64-v4". Bits differ by it.
const char* InstructionSet();
// Whether this build has kernels for GPUs.
bool HasCuda();
// The number of this machine's GPUs that this build can use; 0 without a driver.
uint32_t GpuCount();

// Opens a GPU for the calling thread. kNotFound: this machine has no such GPU, or this build has no
// CUDA; the error says what to do.
Result<OpenedGpu> OpenCuda(const CudaOptions& options);

// A thread that did not open the GPU calls this before it uses it.
void UseOnThisThread(Device device);

// A GPU's memory as its driver counts it, for all processes together.
struct DeviceRoom {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};
DeviceRoom ReadRoom(Device device);  // REQUIRES: a GPU

// Memory of a device, aligned to 256 bytes, and never paged out on a GPU. Its initial content is
// undefined.
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

// Launches that are recorded once, and then launched as one. Most of the cost of a small network's
// many short kernels is their launches. Threads: as for Device. Owns: the recording.
class LaunchGraph {
 public:
  // `launches` may only call operations, each of which was called before with these shapes. They
  // are recorded, not run. The recording has addresses, so each launch reads the current values.
  LaunchGraph(Device device, const std::function<void()>& launches);
  ~LaunchGraph();
  LaunchGraph(LaunchGraph&&) noexcept;
  void Launch() const;

 private:
  struct Recording;  // defined in kernels/cuda alone
  std::unique_ptr<Recording> recording_;
};

// CopyQueue: ordered copies between the host's pinned memory and a GPU's memory, beside the GPU's
// kernels. The worker's computing thread uses it. Threads: as for Device. Owns: a stream.
class CopyQueue {
 public:
  explicit CopyQueue(Device device);  // REQUIRES: a GPU
  ~CopyQueue();                       // waits for its copies
  CopyQueue(CopyQueue&&) noexcept;

  // The host's memory must not change until the copy is done. If it is not pinned (PinnedFloats),
  // the driver has its own copy of it when this returns.
  void ToDevice(std::span<const std::byte> host, void* to);
  // The host's memory is pinned, and must not be used until the copy is done.
  void ToHost(const void* from, std::span<std::byte> host);

  // Later copies of this queue begin after everything that has been launched so far.
  void AwaitLaunched();
  // Later launches begin after all copies of this queue so far.
  void HoldLaunches();

  // Identifies all copies of this queue so far; tickets grow.
  using Ticket = uint64_t;
  Ticket Mark();
  bool IsDone(Ticket ticket);
  void Await(Ticket ticket);

 private:
  struct Impl;  // defined in kernels/cuda alone
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
