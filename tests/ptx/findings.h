// The faults that the checks of the interpreter found. Each finding is printed at once, so that a
// test which aborts keeps it. A process with findings fails at its end, also if a child has them
// that was expected to abort.
#pragma once

#include <atomic>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>

namespace pando::ptx {

// Threads: one at a time.
class Findings {
 public:
  Findings();
  // A kind at a place of a kernel is printed once, and counted always.
  void Add(const std::string& kind, const std::string& kernel, const std::string& line,
           const std::string& detail);
  uint64_t count() const { return *count_; }

 private:
  std::set<std::tuple<std::string, std::string, std::string>> printed_;
  std::atomic<uint64_t>* count_;  // in memory that children share
};

// This process's. Its end, if something was found, is an exit with kFoundExit.
Findings& TheFindings();
inline constexpr int kFoundExit = 86;

}  // namespace pando::ptx
