#include "worker/gradient_reports.h"

#include <algorithm>

namespace pando {

void GradientReports::Add(Micros now, const GradientHash& report) {
  const Micros due_at = now + kGatherInterval;
  due_at_ = hashes_.empty() ? due_at : std::min(due_at_, due_at);
  Report& known = hashes_[{report.step, report.micro_batch}];
  if (report.hash != 0) known = {report.hash, /*was_sent=*/false};
  if (hashes_.size() > kReportsMax) hashes_.erase(hashes_.begin());
}

void GradientReports::Acknowledge(Step below) {
  std::erase_if(hashes_, [&](const auto& entry) {
    return entry.first.first < below && entry.second.was_sent;
  });
}

std::optional<GradientHashes> GradientReports::TakeDue(Micros now) {
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

}  // namespace pando
