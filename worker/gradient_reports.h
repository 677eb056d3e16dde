// GradientReports: the hashes of verified micro-batches (P41) that the scheduler does not know yet,
// gathered into messages and repeated until acknowledged. Used by Verification. Threads: none.
#pragma once

#include <map>
#include <optional>
#include <utility>

#include "proto/outbox.h"

namespace pando {

class GradientReports {
 public:
  // While the scheduler is away the oldest give way to new ones (I6).
  static constexpr size_t kReportsMax = 1 << 16;
  static constexpr size_t kReportsPerMessageMax = 4096;
  static constexpr Micros kGatherInterval = std::chrono::milliseconds(20);
  static constexpr Micros kRepeatInterval = std::chrono::milliseconds(200);

  // A hash of 0 says that there is none to come; it takes no hash away.
  void Add(Micros now, const GradientHash& report);
  // A step may be settled without our word of it: what was never said is said all the same.
  void Acknowledge(Step below);
  void Clear() { hashes_.clear(); }
  // The message that is due, if one is; it is due again after a while.
  std::optional<GradientHashes> TakeDue(Micros now);
  Micros NextDeadline() const { return hashes_.empty() ? kNever : due_at_; }
  size_t size() const { return hashes_.size(); }

 private:
  struct Report {
    uint64_t hash = 0;
    bool was_sent = false;
  };
  std::map<std::pair<Step, MicroBatch>, Report> hashes_;
  Micros due_at_ = kNever;
};

}  // namespace pando
