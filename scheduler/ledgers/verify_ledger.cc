#include "scheduler/ledgers/verify_ledger.h"

#include <algorithm>
#include <utility>

namespace pando {

namespace {

constexpr Micros kHistoryInterval = std::chrono::milliseconds(100);

bool IsPair(const std::pair<const uint64_t, uint32_t>& kind) { return kind.second >= 2; }

}  // namespace

std::optional<Dispute> VerifyLedger::OnReport(Step step, MicroBatch micro_batch,
                                              const Opinion& opinion) {
  if (step < kept_from_ || !plan_.IsVerified(step, micro_batch)) return {};
  const std::pair key(step, micro_batch);
  if (entries_.size() >= kEntriesMax && !entries_.contains(key)) return {};
  Entry& entry = entries_[key];
  if (opinion.hash == 0) {  // the second worker has no gradient
    entry.is_settled = true;
    return {};
  }
  for (const Opinion& other : entry.opinions) {
    if (other.worker == opinion.worker || other.probe_hash != opinion.probe_hash) continue;
    entry.is_settled = true;
    if (other.hash != opinion.hash) return Dispute{0, step, micro_batch, other, opinion};
    Agree(entry);
  }
  if (std::ranges::find(entry.opinions, opinion.worker, &Opinion::worker) == entry.opinions.end())
    entry.opinions.push_back(opinion);
  return {};
}

void VerifyLedger::Agree(Entry& entry) {
  if (std::exchange(entry.is_agreed, true)) return;
  ++state_.agreed_count;
  if (std::exchange(entry.is_unverified, false)) --state_.unverified_count;
}

void VerifyLedger::Settle(Step step, MicroBatch micro_batch, bool is_agreed) {
  if (step < kept_from_) return;
  Entry& entry = entries_[{step, micro_batch}];
  entry.is_settled = true;
  if (is_agreed) Agree(entry);
}

// Whether a worker may still report a gradient to compare this micro-batch with.
bool VerifyLedger::HasSecond(const Entry& entry, const WorkerCounts& workers) const {
  if (entry.is_judged) return true;
  if (entry.opinions.empty()) return std::ranges::any_of(workers, IsPair);
  return std::ranges::any_of(entry.opinions, [&](const Opinion& opinion) {
    const auto kind = workers.find(opinion.probe_hash);
    return kind != workers.end() && IsPair(*kind);
  });
}

bool VerifyLedger::IsSettled(Step step, const WorkerCounts& workers) const {
  for (MicroBatch m : plan_.steps.Tree(step).PresentLeaves()) {
    if (!plan_.IsVerified(step, m)) continue;
    const auto it = entries_.find({step, m});
    if (it == entries_.end()) {
      if (std::ranges::any_of(workers, IsPair)) return false;
    } else if (!it->second.is_settled && HasSecond(it->second, workers)) {
      return false;
    }
  }
  return true;
}

// A micro-batch that is settled without two equal gradients counts as unverified, unless they are
// reported later.
void VerifyLedger::Count(Step step) {
  for (MicroBatch m : plan_.steps.Tree(step).PresentLeaves()) {
    if (!plan_.IsVerified(step, m)) continue;
    const auto it = entries_.find({step, m});
    if (it == entries_.end() ? step < counted_from_ : it->second.is_agreed) continue;
    ++state_.unverified_count;
    if (it != entries_.end()) it->second.is_unverified = true;
  }
}

void VerifyLedger::Advance(Micros now, Version committed, const WorkerCounts& workers) {
  if (has_resumed_ && committed > VersionReadBy(state_.settled_below)) {
    counted_from_ = StepReading(committed);
    has_resumed_ = false;
  }
  if (history_.empty() || now - history_.back().first >= kHistoryInterval)
    history_.emplace_back(now, committed);
  while (history_.size() > 1 && now - history_[1].first >= kPatience) history_.pop_front();
  const bool is_old = now - history_.front().first >= kPatience;
  const Version given_up = is_old ? history_.front().second : Version(0);
  for (; VersionReadBy(state_.settled_below) < committed;
       state_.settled_below = NextStep(state_.settled_below)) {
    if (VersionReadBy(state_.settled_below) >= given_up &&
        !IsSettled(state_.settled_below, workers))
      break;
    Count(state_.settled_below);
  }
  kept_from_ = std::max(kept_from_, std::min(state_.settled_below, StepReading(given_up)));
  entries_.erase(entries_.begin(), entries_.lower_bound({kept_from_, MicroBatch(0)}));
}

void VerifyLedger::StartGeneration(Step first) {
  entries_.clear();
  history_.clear();
  state_.settled_below = kept_from_ = first;
  has_resumed_ = false;
}

void VerifyLedger::Resume(const VerificationState& state) {
  state_ = state;
  kept_from_ = counted_from_ = state.settled_below;
  has_resumed_ = true;
}

}  // namespace pando
