// A GPU that interprets the PTX of kernels/cuda, for tests/cuda_on_host: memory, and launches with
// their limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/ptx/block.h"
#include "tests/ptx/device_memory.h"
#include "tests/ptx/kernel.h"
#include "tests/ptx/module.h"
#include "tests/ptx/random.h"
#include "tests/ptx/symbols.h"

namespace pando::ptx {

// An argument of a launch, as the host has it.
struct Argument {
  const void* value = nullptr;
  size_t size_bytes = 0;
  size_t alignment = 1;
};

struct MachineOptions {
  std::filesystem::path folder;
  std::string arch;  // "sm_90": of NAME.sm_90.ptx, and of what ptxas said of it, NAME.sm_90.txt
  uint64_t seed = 1;
  LaneOrder lane_order = LaneOrder::kLowestFirst;
  // The file to which the kernels are added, and those that ran; or empty.
  std::string notes_path;
};

// Threads: one at a time.
class Machine {
 public:
  explicit Machine(MachineOptions options);

  DeviceMemory& memory() { return memory_; }
  // Runs the kernel whose host function is given.
  void Launch(const void* function, Size3 grid, Size3 block, std::span<const Argument> arguments);

 private:
  const Kernel& FindKernel(const void* function);
  bool IsWithinLimits(const Kernel& kernel, Size3 grid, Size3 block) const;
  std::vector<std::byte> PackArguments(const Kernel& kernel,
                                       std::span<const Argument> arguments) const;
  void RunBlocks(LaunchSetting& setting);
  void Note(const char* what, const std::string& kernel) const;

  const MachineOptions options_;
  DeviceMemory memory_;
  Symbols symbols_;
  Random random_;
  std::deque<Module> modules_;
  std::unordered_map<const void*, std::unique_ptr<Kernel>> kernels_;
};

// This process's, or null where CUDA_ON_HOST_PTX does not say where the PTX is: FOLDER/sm_90.
Machine* TheMachine();

}  // namespace pando::ptx
