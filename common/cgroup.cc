#include "common/cgroup.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "common/text.h"

namespace pando {
namespace {

struct Place {
  const char* controller;  // of version 1, as /proc/self/cgroup names it; version 2 has none
  const char* folder;      // under /sys/fs/cgroup
};
constexpr Place kVersion2{"", ""};
constexpr Place kMemory{"memory", "/memory"};
constexpr Place kCpu{"cpu", "/cpu"};

// Returns this process's path below the controller's folder: "/docker/4f1c". Lines of
// /proc/self/cgroup are "number:controllers:path".
std::string PathBelow(const std::string& root, const std::string& controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::stringstream controllers(line.substr(first + 1, second - first - 1));
    if (controller.empty() && controllers.str().empty()) return line.substr(second + 1);
    for (std::string name; std::getline(controllers, name, ',');) {
      if (name == controller) return line.substr(second + 1);
    }
  }
  return "";
}

// Reads the files of this name in the process's group and in the groups above it, innermost first;
// the strictest limit counts. In a container the path may be the host's, and then only the top
// group exists.
std::vector<std::string> ReadAll(const std::string& root, const Place& place,
                                 const std::string& name) {
  const std::string top = root + "/sys/fs/cgroup" + place.folder;
  std::vector<std::string> texts;
  for (std::string path = PathBelow(root, place.controller);; path.resize(path.rfind('/'))) {
    std::ifstream file(top + path + "/" + name);
    std::stringstream text;
    if (file && text << file.rdbuf()) texts.push_back(text.str());
    if (path.empty() || path == "/") break;
  }
  return texts;
}

// Reads the files of the memory controller; `name2` and `name1` are the names in versions 2 and 1.
std::vector<std::string> ReadMemory(const std::string& root, const char* name2, const char* name1) {
  std::vector<std::string> texts = ReadAll(root, kVersion2, name2);
  for (std::string& text : ReadAll(root, kMemory, name1)) texts.push_back(std::move(text));
  return texts;
}

// Returns the number after this word, or none if the word or the number is missing.
std::optional<uint64_t> NumberAfter(const std::string& word, const std::string& text) {
  std::stringstream words(text);
  for (std::string at; words >> at;) {
    if (at == word && words >> at) return ParseNumber<uint64_t>(at);
  }
  return std::nullopt;
}

// Version 1 writes "no limit" as the largest multiple of a page.
std::optional<uint64_t> ReadMemoryLimit(const std::string& root) {
  constexpr uint64_t kNoLimit = uint64_t{1} << 62;
  uint64_t least = kNoLimit;
  for (const std::string& text : ReadMemory(root, "memory.max", "memory.limit_in_bytes")) {
    const auto limit = ParseNumber<uint64_t>(std::string_view(text).substr(0, text.find('\n')));
    least = std::min(least, limit.value_or(kNoLimit));
  }
  return least < kNoLimit ? std::optional(least) : std::nullopt;
}

// Version 2 has "max 100000" or "200000 100000": microseconds of processor time per period. Version
// 1 has one file for each number.
std::optional<double> ReadCpuLimit(const std::string& root) {
  std::vector<std::string> texts = ReadAll(root, kVersion2, "cpu.max");
  const std::vector<std::string> quotas = ReadAll(root, kCpu, "cpu.cfs_quota_us");
  const std::vector<std::string> periods = ReadAll(root, kCpu, "cpu.cfs_period_us");
  for (size_t i = 0; i < std::min(quotas.size(), periods.size()); ++i)
    texts.push_back(quotas[i] + periods[i]);
  std::optional<double> least;
  for (const std::string& text : texts) {
    std::stringstream words(text);
    std::string quota, period;
    words >> quota >> period;
    const auto quota_us = ParseNumber<uint64_t>(quota);  // "max" and -1 mean no limit
    const auto period_us = ParseNumber<uint64_t>(period);
    if (!quota_us || !period_us || *period_us == 0) continue;
    const double cpus = static_cast<double>(*quota_us) / static_cast<double>(*period_us);
    least = std::min(least.value_or(cpus), cpus);
  }
  return least;
}

}  // namespace

CgroupLimits ReadCgroup(const std::string& root) {
  uint64_t oom_kill_count = 0;
  for (const std::string& text : ReadMemory(root, "memory.events", "memory.oom_control"))
    oom_kill_count = std::max(oom_kill_count, NumberAfter("oom_kill", text).value_or(0));
  return {.memory_bytes = ReadMemoryLimit(root),
          .cpus = ReadCpuLimit(root),
          .oom_kill_count = oom_kill_count};
}

// In glibc 2.36 std::thread::hardware_concurrency() counts all cores of the machine, even those
// that taskset, a cpuset or Slurm keeps from this process.
uint32_t UsableCores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const bool is_known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;  // up to 1024 cores
  const uint32_t count =
      is_known ? static_cast<uint32_t>(CPU_COUNT(&allowed)) : std::thread::hardware_concurrency();
  const uint32_t cores = std::max(1u, count);
  const std::optional<double> cpus = ReadCgroup().cpus;
  return cpus ? std::clamp(static_cast<uint32_t>(std::ceil(*cpus)), 1u, cores) : cores;
}

}  // namespace pando
