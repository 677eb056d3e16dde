// Commits: when a worker learned of each version, from its log, and what a fault did to them. Used
// by recovery. Text in, numbers out.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pando::bench {

using SteadyMicros = std::chrono::microseconds;  // of the machine's steady clock

struct Commit {
  uint64_t version = 0;
  SteadyMicros at{0};
};

// New progress alone: a group that begins again at a snapshot makes versions a second time, which
// do not count.
class Commits {
 public:
  // A line of a worker's log (pando worker -v); others are passed over.
  void Add(const std::string& line);
  const std::vector<Commit>& all() const { return all_; }
  uint64_t newest() const { return all_.empty() ? 0 : all_.back().version; }
  // When this version or a later one was there.
  std::optional<SteadyMicros> Reached(uint64_t version) const;
  // The longest time without a commit from `since` on: what a fault made the run wait for its next
  // step. None where there is no commit after it.
  std::optional<SteadyMicros> LongestWait(SteadyMicros since) const;

 private:
  std::vector<Commit> all_;  // ascending
};

}  // namespace pando::bench
