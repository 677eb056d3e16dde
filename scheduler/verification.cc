#include "scheduler/verification.h"

#include <algorithm>
#include <utility>

namespace pando {
namespace {

// A rollback does not repair machines that keep disagreeing.
constexpr uint32_t kDisputesMax = 8;

std::string PlaceText(const Dispute& dispute) {
  return "micro-batch " + std::to_string(dispute.micro_batch.value()) + " of step " +
         std::to_string(dispute.step.value());
}

}  // namespace

GradientComparison::GradientComparison(const JobPlan& plan,
                                       const std::optional<SchedulerState>& state,
                                       const Parts& parts)
    : plan_(plan), parts_(parts), ledger_(plan) {
  if (!state) return;
  ledger_.Resume(state->verification);
  dispute_ = state->verification.open_dispute;
  if (dispute_ && dispute_->generation != state->view.generation)
    ledger_.AwaitJudge(dispute_->step, dispute_->micro_batch);
}

void GradientComparison::OnGradientHashes(Micros now, const PeerId& from,
                                          const GradientHashes& hashes) {
  const Member& worker = *parts_.membership.members().Find(from.incarnation);
  const std::string name = worker.Name() + " (" + worker.Where() + ")";
  for (const GradientHash& report : hashes.items) {
    if (!parts_.phase.is_running() || parts_.rollback.is_pending()) return;
    if (report.step >= StepReading(parts_.history.final_version())) continue;
    if (IsJudgement(report)) {
      Judge(now, worker.peer.node, report);
    } else if (const auto dispute = ledger_.OnReport(
                   report.step, report.micro_batch,
                   {worker.peer.node, name, worker.ready.probe_hash, report.hash})) {
      OnDispute(now, *dispute);
    }
  }
  parts_.outbox.Send(from, GradientHashesAck{ledger_.settled_below()});
}

// One of the two gradients is in the weights, even if its maker has left. Everything made of it is
// dropped. The journal must have that before anything is made again (P25).
void GradientComparison::OnDispute(Micros now, const Dispute& dispute) {
  const std::string text = dispute.first.name + " and " + dispute.second.name +
                           " have computed different gradients of " + PlaceText(dispute);
  parts_.outbox.Tell(now, "dispute", "", text, /*is_notable=*/true);
  if (++dispute_count_ > kDisputesMax)
    return parts_.phase.End(now, StopReason::kFailed, text + " again; test these machines");
  dispute_ = dispute;
  dispute_->generation = parts_.views.view().generation;
  const Version last_good = VersionReadBy(dispute.step);
  const size_t dropped = parts_.evaluations.DropAfter(now, last_good);
  parts_.snapshots.DiscardAfter(last_good);
  if (!parts_.outbox.Commit()) return;
  if (dropped > 0) parts_.observer.OnEvaluationsDropped(now, last_good);
  parts_.rollback.Plan(now, text);
}

void GradientComparison::OnRestart(Micros now) {
  // The last life of the scheduler had no time to roll back.
  if (!dispute_ || dispute_->generation != parts_.views.view().generation) return;
  parts_.rollback.Plan(now,
                       dispute_->first.name + " and " + dispute_->second.name + " had disagreed");
}

// While a dispute is open, a third worker of the kind owns its micro-batch; if there is none, one
// of the two.
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
  const Member* member = parts_.membership.members().Find(worker);
  return member != nullptr && member->ready.probe_hash == dispute_->first.probe_hash;
}

bool GradientComparison::IsJudgement(const GradientHash& report) const {
  return dispute_ && report.step == dispute_->step && report.micro_batch == dispute_->micro_batch;
}

// The replay has come to the disputed micro-batch. A third worker's gradient decides. If there are
// only two workers, the gradient of either decides: a machine that errs seldom errs twice alike.
void GradientComparison::Judge(Micros now, NodeId judge, const GradientHash& report) {
  const NodeId owner = parts_.views.view().owners[report.micro_batch.value()].worker;
  if (report.hash == 0 || !IsOfDisputedKind(judge)) return;
  if (IsParty(judge) && !IsParty(owner)) return;
  const Dispute dispute = *std::exchange(dispute_, std::nullopt);
  const bool first_errs = dispute.first.hash != report.hash;
  const bool second_errs = dispute.second.hash != report.hash;
  ledger_.Settle(dispute.step, dispute.micro_batch, !(first_errs && second_errs));
  parts_.outbox.MarkChanged();
  parts_.views.RequestView(now);
  if (!first_errs || !second_errs)
    return Expel(now, first_errs ? dispute.first : dispute.second, dispute);
  parts_.outbox.Tell(now, "dispute", "",
                     "three workers have computed three gradients of " + PlaceText(dispute) +
                         "; no worker is drained",
                     /*is_notable=*/true);
}

// The worker that was wrong stops at once.
void GradientComparison::Expel(Micros now, const Opinion& wrong, const Dispute& dispute) {
  const Member* odd = parts_.membership.members().Find(wrong.worker);
  parts_.outbox.Tell(now, "wrong-gradient", odd != nullptr ? odd->Name() : "",
                     wrong.name + " had computed " + PlaceText(dispute) + " wrong: it " +
                         (odd != nullptr ? "is drained" : "has left") + "; test this machine",
                     /*is_notable=*/true);
  if (odd == nullptr) return;
  parts_.evaluations.ReleaseSlices(wrong.worker);
  parts_.membership.MarkDraining(wrong.worker);
  parts_.membership.MarkLeaving(wrong.worker);
  parts_.outbox.RepeatAt(now);
}

void GradientComparison::Tick(Micros now) {
  if (plan_.job.verify_every == 0 || parts_.rollback.is_pending()) return;
  VerifyLedger::WorkerCounts workers;
  for (const Member* worker : parts_.membership.members().Workers())
    ++workers[worker->ready.probe_hash];
  ledger_.Advance(now, parts_.progress.committed(), workers);
  if (!dispute_ || ledger_.settled_below() <= dispute_->step) return;
  parts_.outbox.Tell(now, "dispute", "", "no third worker has computed " + PlaceText(*dispute_),
                     /*is_notable=*/true);
  dispute_.reset();
  parts_.outbox.MarkChanged();
  parts_.views.RequestView(now);
}

void GradientComparison::StartGeneration(Step first) {
  ledger_.StartGeneration(first);
  if (dispute_) ledger_.AwaitJudge(dispute_->step, dispute_->micro_batch);
}

Version GradientComparison::RestoreBound() const {
  const Version next = parts_.history.NextDue();
  return dispute_ ? std::min(next, VersionReadBy(dispute_->step)) : next;
}

bool GradientComparison::IsSettled() const {
  return plan_.job.verify_every == 0 ||
         ledger_.settled_below() >= StepReading(parts_.history.final_version());
}

VerificationState GradientComparison::State() const {
  VerificationState state = ledger_.State();
  state.open_dispute = dispute_;
  return state;
}

}  // namespace pando
