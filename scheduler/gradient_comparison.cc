#include "scheduler/gradient_comparison.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "plan/external_model.h"

namespace pando {
namespace {

constexpr Micros kHistoryInterval = std::chrono::milliseconds(100);

bool IsPair(const std::pair<const uint64_t, uint32_t>& kind) { return kind.second >= 2; }

// One more dispute ends the run: rollbacks do not repair machines that keep disagreeing.
constexpr uint32_t kDisputesMax = 8;

std::string PlaceText(const Dispute& dispute) {
  return fmt::format("micro-batch {} of step {}", dispute.micro_batch.value(),
                     dispute.step.value());
}

// Returns advice for the case that workers of one kind compute different gradients.
std::string RemedyText(const Job& job) {
  return IsExternal(job) ? "test this machine, and look for state that the program keeps between "
                           "micro-batches (docs/pytorch.md)"
                         : "test this machine";
}

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

// Returns whether a worker may still report a second gradient of this micro-batch.
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

// Counts the step's micro-batches without two equal gradients as unverified. A late report of an
// equal one undoes this.
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
  if (has_resumed_ && committed > VersionUpdatedBy(state_.settled_below)) {
    counted_from_ = StepUpdating(committed);
    has_resumed_ = false;
  }
  if (history_.empty() || now - history_.back().first >= kHistoryInterval)
    history_.emplace_back(now, committed);
  while (history_.size() > 1 && now - history_[1].first >= kPatience) history_.pop_front();
  const bool is_old = now - history_.front().first >= kPatience;
  const Version given_up = is_old ? history_.front().second : Version(0);
  for (; VersionUpdatedBy(state_.settled_below) < committed;
       state_.settled_below = NextStep(state_.settled_below)) {
    if (VersionUpdatedBy(state_.settled_below) >= given_up &&
        !IsSettled(state_.settled_below, workers))
      break;
    Count(state_.settled_below);
  }
  kept_from_ = std::max(kept_from_, std::min(state_.settled_below, StepUpdating(given_up)));
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

GradientComparison::GradientComparison(const std::optional<SchedulerState>& state,
                                       const SchedulerPart& part, const EvaluationHistory& history,
                                       const RunProgress& progress, RunMembers& membership,
                                       EvaluationRounds& evaluations, Snapshots& snapshots,
                                       const Ownership& ownership)
    : SchedulerPart(part),
      history_(history),
      progress_(progress),
      membership_(membership),
      evaluations_(evaluations),
      snapshots_(snapshots),
      ownership_(ownership),
      ledger_(plan_) {
  if (!state) return;
  ledger_.Resume(state->verification);
  dispute_ = state->verification.open_dispute;
  if (dispute_ && dispute_->generation != state->view.generation)
    ledger_.AwaitJudge(dispute_->step, dispute_->micro_batch);
}

void GradientComparison::OnGradientHashes(Micros now, const PeerId& from,
                                          const GradientHashes& hashes) {
  const Member& worker = membership_.members().Sender(from);
  for (const GradientHash& report : hashes.items) {
    if (!phase_.is_running() || phase_.is_rolling_back()) return;
    if (report.step >= StepUpdating(history_.final_version())) continue;
    // P46. A report that does not count is acknowledged too, so that the worker does not repeat it.
    if (!ownership_.IsComputedBy(worker.peer.node, report.step, report.micro_batch)) continue;
    if (IsJudgement(report)) {
      Judge(now, worker.peer.node, report);
    } else if (const auto dispute = ledger_.OnReport(report.step, report.micro_batch,
                                                     {worker.peer.node, worker.Description(),
                                                      worker.ready.probe_hash, report.hash})) {
      OnDispute(now, *dispute);
    }
  }
  outbox_.Send(from, GradientHashesAck{ledger_.settled_below()});
}

// One of the two gradients is in the weights, even if its worker has left. Everything made from
// that gradient is dropped. The journal must record this before any step is made again (P25).
void GradientComparison::OnDispute(Micros now, const Dispute& dispute) {
  const std::string text = fmt::format("{} and {} have computed different gradients of {}",
                                       dispute.first.name, dispute.second.name, PlaceText(dispute));
  outbox_.TellNotable(now, "dispute", "", "{}", text);
  if (++dispute_count_ > kDisputesMax)
    return phase_.End(now, StopReason::kFailed, text + " again; " + RemedyText(plan_.job));
  dispute_ = dispute;
  dispute_->generation = views_.view().generation;
  const Version last_good = VersionUpdatedBy(dispute.step);
  snapshots_.ledger().DiscardAfter(last_good);
  if (evaluations_.DropAfter(now, last_good)) phase_.PlanRollback(now, text);
}

void GradientComparison::OnRestart(Micros now) {
  // A dispute of the current generation means that the last life did not roll back.
  if (!dispute_ || dispute_->generation != views_.view().generation) return;
  phase_.PlanRollback(now,
                      dispute_->first.name + " and " + dispute_->second.name + " had disagreed");
}

// While a dispute is open, a third worker of its kind owns the micro-batch. If there is no third
// worker, one of the two owns it.
void GradientComparison::AppointJudge(std::vector<NodeId>& workers) const {
  if (!dispute_ || dispute_->micro_batch.value() >= workers.size()) return;
  const auto find = [&](bool is_party) {
    return std::ranges::find_if(workers, [&](NodeId worker) {
      return IsParty(worker) == is_party && IsOfDisputedKind(worker);
    });
  };
  auto judge = find(/*is_party=*/false);
  if (judge == workers.end()) judge = find(/*is_party=*/true);
  if (judge != workers.end()) workers[dispute_->micro_batch.value()] = *judge;
}

bool GradientComparison::IsParty(NodeId worker) const {
  return worker == dispute_->first.worker || worker == dispute_->second.worker;
}

bool GradientComparison::IsOfDisputedKind(NodeId worker) const {
  const Member* member = membership_.members().Find(worker);
  return member != nullptr && member->ready.probe_hash == dispute_->first.probe_hash;
}

bool GradientComparison::IsJudgement(const GradientHash& report) const {
  return dispute_ && report.step == dispute_->step && report.micro_batch == dispute_->micro_batch;
}

// The run is at the disputed micro-batch again. A third worker's gradient decides. If there are
// only two workers, either's gradient decides: the same error seldom occurs twice.
void GradientComparison::Judge(Micros now, NodeId judge, const GradientHash& report) {
  const NodeId owner = views_.view().owners[report.micro_batch.value()].worker;
  if (report.hash == 0 || !IsOfDisputedKind(judge)) return;
  if (IsParty(judge) && !IsParty(owner)) return;
  const Dispute dispute = *dispute_;
  Close(now);
  const bool first_errs = dispute.first.hash != report.hash;
  const bool second_errs = dispute.second.hash != report.hash;
  ledger_.Settle(dispute.step, dispute.micro_batch, !(first_errs && second_errs));
  if (!first_errs || !second_errs)
    return Expel(now, first_errs ? dispute.first : dispute.second, dispute);
  outbox_.TellNotable(now, "dispute", "",
                      "three workers have computed three gradients of {}; no worker is drained",
                      PlaceText(dispute));
}

// Stops the worker that was wrong at once.
void GradientComparison::Expel(Micros now, const Opinion& wrong, const Dispute& dispute) {
  const Member* odd = membership_.members().Find(wrong.worker);
  outbox_.TellNotable(now, "wrong-gradient", odd != nullptr ? odd->Name() : "",
                      "{} had computed {} wrong: it {}; {}", wrong.name, PlaceText(dispute),
                      odd != nullptr ? "is drained" : "has left", RemedyText(plan_.job));
  if (odd == nullptr) return;
  evaluations_.ReleaseSlices(wrong.worker);
  membership_.MarkDraining(wrong.worker);
  membership_.MarkLeaving(wrong.worker);
  outbox_.RepeatAt(now);
}

void GradientComparison::Tick(Micros now) {
  if (plan_.job.verify_every == 0 || phase_.is_rolling_back()) return;
  VerifyLedger::WorkerCounts workers;
  for (const Member* worker : membership_.members().Workers()) ++workers[worker->ready.probe_hash];
  ledger_.Advance(now, progress_.committed(), workers);
  if (!dispute_ || ledger_.settled_below() <= dispute_->step) return;
  outbox_.TellNotable(now, "dispute", "", "no third worker has computed {}", PlaceText(*dispute_));
  Close(now);
}

void GradientComparison::Close(Micros now) {
  dispute_.reset();
  outbox_.MarkChanged();
  views_.RequestView(now);
}

void GradientComparison::StartGeneration(Step first) {
  ledger_.StartGeneration(first);
  if (dispute_) ledger_.AwaitJudge(dispute_->step, dispute_->micro_batch);
}

Version GradientComparison::RestoreBound() const {
  const Version next = history_.NextDue();
  return dispute_ ? std::min(next, VersionUpdatedBy(dispute_->step)) : next;
}

bool GradientComparison::IsSettled() const {
  return plan_.job.verify_every == 0 ||
         ledger_.settled_below() >= StepUpdating(history_.final_version());
}

VerificationState GradientComparison::State() const {
  VerificationState state = ledger_.state();
  state.open_dispute = dispute_;
  return state;
}

}  // namespace pando
