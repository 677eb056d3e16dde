#include "scheduler/verify_ledger.h"

#include <algorithm>

namespace pando {

namespace {

constexpr Micros kHistoryInterval = std::chrono::milliseconds(100);

}  // namespace

std::optional<VerifyLedger::Dispute> VerifyLedger::OnReport(Step step, MicroBatch micro_batch,
                                                            const Opinion& opinion) {
  if (step < kept_from_ || !plan_.IsVerified(step, micro_batch)) return {};
  const std::pair key(step, micro_batch);
  if (entries_.size() == kEntriesMax && !entries_.contains(key)) return {};
  Entry& entry = entries_[key];
  if (opinion.hash == 0) {  // the second worker has none to give
    entry.is_settled = true;
    return {};
  }
  for (const Opinion& other : entry.opinions) {
    if (other.worker == opinion.worker) continue;
    entry.is_settled = true;
    if (other.hash != opinion.hash) return Dispute{step, micro_batch, other, opinion};
  }
  if (std::ranges::find(entry.opinions, opinion.worker, &Opinion::worker) == entry.opinions.end())
    entry.opinions.push_back(opinion);
  return {};
}

void VerifyLedger::Settle(Step step, MicroBatch micro_batch) {
  if (step >= below_) entries_[{step, micro_batch}].is_settled = true;
}

bool VerifyLedger::IsSettled(Step step) const {
  for (MicroBatch m : plan_.steps.Tree(step).PresentLeaves()) {
    if (!plan_.IsVerified(step, m)) continue;
    const auto it = entries_.find({step, m});
    if (it == entries_.end() || !it->second.is_settled) return false;
  }
  return true;
}

void VerifyLedger::Advance(Micros now, Version committed, bool has_second) {
  if (history_.empty() || now - history_.back().first >= kHistoryInterval)
    history_.emplace_back(now, committed);
  while (history_.size() > 1 && now - history_[1].first >= kPatience) history_.pop_front();
  const bool is_old = now - history_.front().first >= kPatience;
  const Version given_up = is_old ? history_.front().second : Version(0);
  for (; VersionReadBy(below_) < committed; below_ = NextStep(below_)) {
    if (has_second && VersionReadBy(below_) >= given_up && !IsSettled(below_)) break;
  }
  kept_from_ = std::max(kept_from_, std::min(below_, StepReading(given_up)));
  entries_.erase(entries_.begin(), entries_.lower_bound({kept_from_, MicroBatch(0)}));
}

void VerifyLedger::StartGeneration(Step first) {
  entries_.clear();
  history_.clear();
  below_ = kept_from_ = first;
}

}  // namespace pando
