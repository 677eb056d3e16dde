#include "tests/cuda_on_host/device.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "common/check.h"
#include "tests/ptx/machine.h"

namespace cuda_on_host {
namespace {

using pando::ptx::Machine;
using pando::ptx::TheMachine;

constexpr const char* kCopy = "a copy";
constexpr const char* kLibrary = "a library";

// The host's side of a copy may be managed memory, as the GPU's may.
const void* HostSide(Machine& machine, const void* memory) {
  if (!machine.memory().IsDevice(memory)) return memory;
  const auto* allocation = machine.memory().Find(reinterpret_cast<uint64_t>(memory));
  if (allocation == nullptr || !allocation->is_managed) {
    pando::ptx::TheFindings().Add("a copy in the wrong direction", "", "?",
                                  "the host's side is the GPU's memory");
    std::abort();
  }
  return memory;
}

}  // namespace

std::byte* AllocateOnHost(size_t size_bytes) {
  constexpr size_t kAlignmentBytes = 256;
  const size_t rounded = (size_bytes / kAlignmentBytes + 1) * kAlignmentBytes;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kAlignmentBytes, rounded));
  PANDO_CHECK(memory != nullptr);
  std::memset(memory, 0xff, rounded);  // means nothing
  return memory;
}

void* AllocateOnDevice(size_t size_bytes, bool is_managed) {
  if (TheMachine() != nullptr) return TheMachine()->memory().Allocate(size_bytes, is_managed);
  return AllocateOnHost(size_bytes);
}

void FreeOnDevice(void* memory) {
  if (TheMachine() != nullptr) return TheMachine()->memory().Free(memory);
  std::free(memory);
}

void Copy(void* to, const void* from, size_t size_bytes, cudaMemcpyKind kind) {
  if (TheMachine() == nullptr || size_bytes == 0) {
    std::memcpy(to, from, size_bytes);
    return;
  }
  pando::ptx::DeviceMemory& memory = TheMachine()->memory();
  const void* source = kind == cudaMemcpyHostToDevice ? HostSide(*TheMachine(), from)
                                                      : memory.ForLoad(from, size_bytes, kCopy);
  if (kind == cudaMemcpyDeviceToHost) {
    HostSide(*TheMachine(), to);
    std::memcpy(to, source, size_bytes);
    return;
  }
  std::memcpy(memory.ForStore(to, size_bytes, kCopy), source, size_bytes);
}

void SetBytes(void* to, int byte, size_t size_bytes) {
  std::memset(ViewForStore(to, size_bytes), byte, size_bytes);
}

const void* ViewForLoad(const void* memory, size_t size_bytes) {
  if (TheMachine() == nullptr || size_bytes == 0) return memory;
  return TheMachine()->memory().ForLoad(memory, size_bytes, kLibrary);
}

void* ViewForStore(void* memory, size_t size_bytes) {
  if (TheMachine() == nullptr || size_bytes == 0) return memory;
  return TheMachine()->memory().ForStore(memory, size_bytes, kLibrary);
}

void RunKernel(const void* function, dim3 grid_size, dim3 block_size,
               std::initializer_list<Argument> arguments, const std::function<void()>& on_host) {
  if (TheMachine() == nullptr || choose_block) return RunGrid(grid_size, block_size, on_host);
  std::vector<pando::ptx::Argument> values;
  for (const Argument& each : arguments)
    values.push_back({each.value, each.size_bytes, each.alignment});
  TheMachine()->Launch(function, {grid_size.x, grid_size.y, grid_size.z},
                       {block_size.x, block_size.y, block_size.z}, values);
}

}  // namespace cuda_on_host
