// Verdict: the first breach of an invariant, which ends the seed; and which bits are right. Shared
// by the parts of Checker.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "plan/job_plan.h"
#include "tests/sim/reference.h"
#include "tests/sim/world.h"

namespace pando::sim {

inline bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

inline std::string Text(uint64_t value) { return std::to_string(value); }
inline std::string Text(ShardId shard) { return "shard " + Text(shard.value()); }
inline std::string Text(Version version) { return "version " + Text(version.value()); }

class Verdict {
 public:
  explicit Verdict(const World& world) : world_(world) {}
  void Fail(const std::string& what) {
    if (!failure_) failure_ = what + " at " + std::to_string(world_.now().count()) + " us";
  }
  const std::optional<std::string>& failure() const { return failure_; }

 private:
  const World& world_;
  std::optional<std::string> failure_;
};

// The values with which the run is compared.
class Truth {
 public:
  Truth(const JobPlan& plan, const Reference& reference) : plan_(plan), reference_(reference) {}
  const JobPlan& plan() const { return plan_; }
  const Reference& reference() const { return reference_; }
  // Whether bits may differ from the serial run's: the job's codec gives I5 up (P34).
  bool HasOwnBits() const { return plan_.pushes.has_feedback(); }
  // A worker has computed wrong bits: nothing of this generation needs to be right.
  void Taint(uint32_t generation) { tainted_generation_ = generation; }
  bool is_tainted() const { return tainted_generation_.has_value(); }
  bool IsTainted(uint32_t generation) const {
    return tainted_generation_ && generation <= *tainted_generation_;
  }

 private:
  const JobPlan& plan_;
  const Reference& reference_;
  std::optional<uint32_t> tainted_generation_;
};

}  // namespace pando::sim
