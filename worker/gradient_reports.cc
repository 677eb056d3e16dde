#include "worker/gradient_reports.h"

#include <algorithm>

namespace pando {

void GradientReports::Add(Micros now, const GradientHash& report) {
  const Micros due_at = now + kGatherInterval;
  due_at_ = hashes_.empty() ? due_at : std::min(due_at_, due_at);
  uint64_t& hash = hashes_[{report.step, report.micro_batch}];
  if (report.hash != 0) hash = report.hash;
  if (hashes_.size() > kReportsMax) hashes_.erase(hashes_.begin());
}

void GradientReports::Acknowledge(Step below) {
  hashes_.erase(hashes_.begin(), hashes_.lower_bound({below, MicroBatch(0)}));
}

std::optional<GradientHashes> GradientReports::TakeDue(Micros now) {
  if (now < NextDeadline()) return std::nullopt;
  due_at_ = now + kRepeatInterval;
  GradientHashes message;
  for (const auto& [key, hash] : hashes_) {
    if (message.items.size() == kReportsPerMessageMax) break;
    message.items.push_back({key.first, key.second, hash});
  }
  return message;
}

}  // namespace pando
