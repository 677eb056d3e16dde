#include "common/out_of_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <tuple>

#include "common/exit_codes.h"

namespace pando {
namespace {

constexpr double kMegabyte = 1e6;
const char* memory_advice = "";  // set once, before other threads start

// Returns the address space. Avoids streams, which allocate. The file's first number is its pages.
double AddressSpaceMegabytes() {
  std::array<char, 64> text{};
  FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  const char* line = std::fgets(text.data(), text.size(), file);
  std::fclose(file);
  const double pages = line == nullptr ? 0 : std::strtod(line, nullptr);
  return pages * static_cast<double>(sysconf(_SC_PAGESIZE)) / kMegabyte;
}

}  // namespace

void EndOutOfMemory(size_t bytes, const char* what) {
  std::array<char, 64> wanted{};
  if (bytes > 0)
    std::snprintf(wanted.data(), wanted.size(), "%.1f MB for ",
                  static_cast<double>(bytes) / kMegabyte);
  rlimit limit{};
  std::array<char, 64> allowed{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    std::snprintf(allowed.data(), allowed.size(), " of the %.1f MB that ulimit -v allows",
                  static_cast<double>(limit.rlim_cur) / kMegabyte);
  }
  std::array<char, 512> text{};
  std::snprintf(text.data(), text.size(),
                "pando: out of memory: no %s%s; the process has %.1f MB%s%s\n", wanted.data(), what,
                AddressSpaceMegabytes(), allowed.data(), memory_advice);
  std::ignore = write(STDERR_FILENO, text.data(), std::strlen(text.data()));
  _exit(kExitOutOfMemory);
}

void SetMemoryAdvice(const char* advice) { memory_advice = advice; }

void EndWhenOutOfMemory() {
  SetOnNoMemory([](size_t bytes, const char* what) { EndOutOfMemory(bytes, what); });
  std::set_new_handler([] { EndOutOfMemory(0, "room for another object"); });
}

}  // namespace pando
