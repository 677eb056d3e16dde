// GradientReports gathers the hashes of verified micro-batches (P41) that the scheduler does not
// know yet into messages, and repeats them. Threads: none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "common/clock.h"
#include "proto/messages.h"

namespace pando {

class GradientReports {
 public:
  // While the scheduler is away, new hashes replace the oldest (I6).
  static constexpr size_t kReportsMax = 1 << 16;
  static constexpr size_t kReportsPerMessageMax = 4096;
  static constexpr Micros kGatherInterval = std::chrono::milliseconds(20);
  static constexpr Micros kRepeatInterval = std::chrono::milliseconds(200);

  // A hash of 0 says that none will come. It does not replace a hash.
  void Add(Micros now, const GradientHash& report) {
    const Micros due_at = now + kGatherInterval;
    due_at_ = hashes_.empty() ? due_at : std::min(due_at_, due_at);
    Report& known = hashes_[{report.step, report.micro_batch}];
    if (report.hash != 0) known = {report.hash, /*was_sent=*/false};
    if (hashes_.size() > kReportsMax) hashes_.erase(hashes_.begin());
  }
  // A step may be settled without our report. A report that was never sent is still sent.
  void Acknowledge(Step below) {
    std::erase_if(hashes_, [&](const auto& entry) {
      return entry.first.first < below && entry.second.was_sent;
    });
  }
  void Clear() { hashes_.clear(); }
  // The message that is due, if one is; it is due again after a while.
  std::optional<GradientHashes> TakeDue(Micros now) {
    if (now < NextDeadline()) return std::nullopt;
    due_at_ = now + kRepeatInterval;
    GradientHashes message;
    for (auto& [key, report] : hashes_) {
      if (message.items.size() == kReportsPerMessageMax) break;
      message.items.push_back({key.first, key.second, report.hash});
      report.was_sent = true;
    }
    return message;
  }
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
