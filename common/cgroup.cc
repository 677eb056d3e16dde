#include "common/cgroup.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <sstream>
#include <thread>

#include "common/text.h"

namespace pando {
namespace {

// A folder of one controller of version 1, or of version 2, which has them all in one.
struct Place {
  const char* controller;  // as /proc/self/cgroup names it
  const char* folder;      // under /sys/fs/cgroup
};
constexpr Place kVersion2{"", ""};
constexpr Place kMemory{"memory", "/memory"};
constexpr Place kCpu{"cpu", "/cpu"};

// This process's path below the controller's folder: "/docker/4f1c". Lines of /proc/self/cgroup are
// "number:controllers:path".
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

// Within a container the path may be the host's, and the container's own group is at the top.
std::string Read(const std::string& root, const Place& place, const std::string& name) {
  const std::string top = root + "/sys/fs/cgroup" + place.folder;
  for (const std::string& folder : {top + PathBelow(root, place.controller), top}) {
    std::ifstream file(folder + "/" + name);
    std::stringstream text;
    if (file && text << file.rdbuf()) return text.str();
  }
  return "";
}

// The number after this word; none: there is none.
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
  for (const std::string& text :
       {Read(root, kVersion2, "memory.max"), Read(root, kMemory, "memory.limit_in_bytes")}) {
    const auto limit = ParseNumber<uint64_t>(std::string_view(text).substr(0, text.find('\n')));
    if (limit && *limit < kNoLimit) return limit;
  }
  return std::nullopt;
}

// "max 100000" or "200000 100000": microseconds of processor time per period.
std::optional<double> ReadCpuLimit(const std::string& root) {
  const std::string text = Read(root, kVersion2, "cpu.max") + Read(root, kCpu, "cpu.cfs_quota_us") +
                           Read(root, kCpu, "cpu.cfs_period_us");
  std::stringstream words(text);
  std::string quota, period;
  words >> quota >> period;
  const auto quota_us = ParseNumber<uint64_t>(quota);  // "max", or -1: no limit
  const auto period_us = ParseNumber<uint64_t>(period);
  if (!quota_us || !period_us || *period_us == 0) return std::nullopt;
  return static_cast<double>(*quota_us) / static_cast<double>(*period_us);
}

}  // namespace

CgroupLimits ReadCgroup(const std::string& root) {
  const std::string events =
      Read(root, kVersion2, "memory.events") + Read(root, kMemory, "memory.oom_control");
  return {.memory_bytes = ReadMemoryLimit(root),
          .cpus = ReadCpuLimit(root),
          .oom_kill_count = NumberAfter("oom_kill", events).value_or(0)};
}

uint32_t UsableCores() {
  const uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
  const std::optional<double> cpus = ReadCgroup().cpus;
  return cpus ? std::clamp(static_cast<uint32_t>(std::ceil(*cpus)), 1u, cores) : cores;
}

}  // namespace pando
