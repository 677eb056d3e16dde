#include "bench/harness/machine.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>

#include "bench/commit.h"

namespace pando::bench {
namespace {

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

uint32_t UsableCores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return static_cast<uint32_t>(CPU_COUNT(&cores));
}

}  // namespace

Machine ReadMachine() {
  Machine machine{.cpu = CpuModel(), .cores = UsableCores()};
  machine.memory_bytes =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  utsname name{};
  if (uname(&name) == 0) machine.kernel = fmt::format("{} {}", name.sysname, name.release);
  double loads[1] = {0.0};
  if (getloadavg(loads, 1) == 1) machine.load = loads[0];
  return machine;
}

std::string BuiltCommit() { return PANDO_COMMIT; }

std::string NowUtc() {
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now));
}

}  // namespace pando::bench
