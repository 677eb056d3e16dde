// What the control group of this process, a container's say, lets it have: Linux's cgroups, version
// 2 or 1. Threads: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace pando {

struct CgroupLimits {
  std::optional<uint64_t> memory_bytes;  // none: the machine's
  std::optional<double> cpus;            // processors' time; none: the machine's
  uint64_t oom_kill_count = 0;           // processes that the memory limit has ended so far
};

// `root`: where /proc and /sys are; other than "" in tests.
CgroupLimits ReadCgroup(const std::string& root = "");

// The processors that this process can use: those of its affinity (taskset, a cpuset), within its
// cgroup's limit; at least 1.
uint32_t UsableCores();

}  // namespace pando
