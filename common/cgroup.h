// The limits of this process's control group (Linux's cgroups, version 2 or 1), for example a
// container's. Threads: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace pando {

struct CgroupLimits {
  std::optional<uint64_t> memory_bytes;  // none: the machine's memory is the limit
  std::optional<double> cpus;            // processor time; none: all cores of the machine
  uint64_t oom_kill_count = 0;           // processes that the memory limit has ended so far
};

// Reads the limits. `root` is the folder that has /proc and /sys; only tests set it.
CgroupLimits ReadCgroup(const std::string& root = "");

// Returns the number of processors that this process can use: those of its affinity (taskset, a
// cpuset), within its cgroup's limit; at least 1.
uint32_t UsableCores();

}  // namespace pando
