// Where and when a result was measured, and of which commit.
#pragma once

#include <cstdint>
#include <string>

namespace pando::bench {

struct Machine {
  std::string cpu;
  uint32_t cores = 0;  // that this process may use
  uint64_t memory_bytes = 0;
  std::string kernel;
  double load = 0.0;  // of the last minute, before the benchmark: others' work
};
Machine ReadMachine();

// `git describe` of the sources when the program was built; "unknown" outside a checkout.
std::string BuiltCommit();
std::string NowUtc();  // "2026-03-01T12:00:00Z"

}  // namespace pando::bench
