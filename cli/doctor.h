// The checks of `pando doctor`: facts about this machine and this build, and the problems that they
// cause for a run. Reading and judging are separate, so that tests can judge any facts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/cgroup.h"
#include "kernels/nvml.h"

namespace pando {

struct MachineFacts {
  std::string system;           // "Linux 6.1.0 x86_64"
  std::string processor;        // "AMD EPYC 9B14"
  std::string instruction_set;  // of the chosen kernels: "x86-64-v4"
  uint32_t core_count = 0;      // cores that this process may use
  uint32_t numa_node_count = 0;
  uint64_t memory_bytes = 0;
  CgroupLimits cgroup;
  uint64_t open_files_max = 0;  // ulimit -n
  bool has_loopback = false;    // a socket can be bound on 127.0.0.1
  // The GPUs on the bus, those that the driver knows, and whether this build can use GPUs.
  uint32_t nvidia_card_count = 0;
  std::string driver_version;  // empty: no driver
  std::vector<GpuState> gpus;
  bool is_cuda_built = false;
  std::string cudnn;         // "9.19.0"; empty: it cannot be loaded
  std::string cublas;        // "13.1.0"
  std::string cuda_trouble;  // why CUDA cannot use the GPU; empty: it can, or there is none
};

struct LibraryVersion {
  std::string name;
  std::string version;
};

MachineFacts ReadMachine();
std::vector<LibraryVersion> ReadLibraries();

// Returns sentences that each say what is wrong and what to do; empty if nothing is wrong.
std::vector<std::string> FindProblems(const MachineFacts& facts);
// Describes the facts, one line each.
std::string DescribeMachine(const MachineFacts& facts,
                            const std::vector<LibraryVersion>& libraries);

}  // namespace pando
