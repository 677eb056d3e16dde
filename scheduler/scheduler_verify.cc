// Verification of machines (P41): what two workers make of one micro-batch must be the same.
#include <algorithm>
#include <utility>

#include "scheduler/scheduler.h"

namespace pando {
namespace {

// Machines that keep disagreeing are not healed by beginning again.
constexpr uint32_t kDisputesMax = 8;

std::string PlaceText(const Dispute& dispute) {
  return "micro-batch " + std::to_string(dispute.micro_batch.value()) + " of step " +
         std::to_string(dispute.step.value());
}

}  // namespace

void Scheduler::OnMessageOf(Micros now, const Envelope& envelope, const GradientHashes& hashes) {
  const Member& worker = *members_.Find(envelope.sender.incarnation);
  const std::string name = worker.Name() + " (" + worker.Where() + ")";
  for (const GradientHash& report : hashes.items) {
    if (!is_running() || rollback_) return;
    if (report.step >= StepReading(final_version_)) continue;
    if (IsJudgement(report)) {
      Judge(now, worker.peer.node, report);
    } else if (const auto dispute = verified_.OnReport(
                   report.step, report.micro_batch,
                   {worker.peer.node, name, worker.ready.probe_hash, report.hash})) {
      OnDispute(now, *dispute);
    }
  }
  Send(envelope.sender, GradientHashesAck{verified_.settled_below()});
}

// One of the two gradients is in the weights, wherever its maker is now: what was made of it is
// forgotten, and that it is must be in the journal before anything is made anew (P25).
void Scheduler::OnDispute(Micros now, const Dispute& dispute) {
  const std::string text = dispute.first.name + " and " + dispute.second.name +
                           " have computed different gradients of " + PlaceText(dispute);
  Tell(now, "dispute", "", text, /*is_notable=*/true);
  if (++dispute_count_ > kDisputesMax)
    return End(now, StopReason::kFailed, text + ", once more; test these machines");
  dispute_ = dispute;
  dispute_->generation = view_.generation;
  const Version last_good = VersionReadBy(dispute.step);
  const size_t dropped = std::erase_if(evaluations_, [&](const EvaluationSummary& evaluation) {
    return evaluation.version > last_good;
  });
  evaluated_ = evaluations_.empty() ? Version(0) : evaluations_.back().version;
  Decide();
  if (evaluation_ && evaluation_->version > last_good) {
    evaluation_time_ += now - evaluation_->started_at;
    evaluation_.reset();
  }
  snapshots_.DiscardAfter(last_good);
  if (!Commit()) return;
  if (dropped > 0) observer_.OnEvaluationsDropped(now, last_good);
  PlanRollback(now, text);
}

// While a dispute is open, somebody else of the kind owns its micro-batch, if there is somebody
// else.
void Scheduler::AppointJudge(std::vector<NodeId>& workers) const {
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

bool Scheduler::IsParty(NodeId worker) const {
  return worker == dispute_->first.worker || worker == dispute_->second.worker;
}

bool Scheduler::IsOfDisputedKind(NodeId worker) const {
  const Member* member = members_.Find(worker);
  return member != nullptr && member->ready.probe_hash == dispute_->first.probe_hash;
}

bool Scheduler::IsJudgement(const GradientHash& report) const {
  return dispute_ && report.step == dispute_->step && report.micro_batch == dispute_->micro_batch;
}

// The replay has come to what was disputed. A third worker's word decides; where there are two
// workers, that of either, since a machine that errs seldom errs twice alike.
void Scheduler::Judge(Micros now, NodeId judge, const GradientHash& report) {
  const auto owner = view_.owners[report.micro_batch.value()].worker;
  if (report.hash == 0 || !IsOfDisputedKind(judge)) return;
  if (IsParty(judge) && !IsParty(owner)) return;
  const Dispute dispute = *std::exchange(dispute_, std::nullopt);
  const bool first_errs = dispute.first.hash != report.hash;
  const bool second_errs = dispute.second.hash != report.hash;
  verified_.Settle(dispute.step, dispute.micro_batch, !(first_errs && second_errs));
  has_changed_ = true;
  RequestView(now);
  if (first_errs && second_errs) {
    return Tell(now, "dispute", "",
                "three workers have computed three gradients of " + PlaceText(dispute) +
                    "; nobody is drained",
                /*is_notable=*/true);
  }
  const Opinion& wrong = first_errs ? dispute.first : dispute.second;
  Member* odd = members_.Find(wrong.worker);
  Tell(now, "wrong-gradient", odd != nullptr ? odd->Name() : "",
       wrong.name + " had computed " + PlaceText(dispute) + " wrong: it " +
           (odd != nullptr ? "is drained" : "has left") + "; test this machine",
       /*is_notable=*/true);
  if (odd == nullptr) return;
  ReleaseSlices(odd->peer.node);
  odd->is_draining = true;
  odd->is_leaving = true;
  repeat_at_ = now;
}

void Scheduler::AdvanceVerification(Micros now) {
  if (plan_.job.verify_every == 0 || rollback_) return;
  VerifyLedger::WorkerCounts workers;
  for (const Member* worker : members_.Workers()) ++workers[worker->ready.probe_hash];
  verified_.Advance(now, committed_, workers);
  if (!dispute_ || verified_.settled_below() <= dispute_->step) return;
  Tell(now, "dispute", "", "nobody could judge " + PlaceText(*dispute_), /*is_notable=*/true);
  dispute_.reset();
  has_changed_ = true;
  RequestView(now);
}

VerificationState Scheduler::verification() const {
  VerificationState state = verified_.State();
  state.open_dispute = dispute_;
  return state;
}

// Of an earlier life of ours in this generation.
void Scheduler::ResumeVerification(const VerificationState& state) {
  verified_.Resume(state);
  dispute_ = state.open_dispute;
  had_judge_ = dispute_.has_value();
  if (dispute_ && dispute_->generation != view_.generation)
    verified_.AwaitJudge(dispute_->step, dispute_->micro_batch);
}

bool Scheduler::IsVerificationSettled() const {
  return plan_.job.verify_every == 0 || verified_.settled_below() >= StepReading(final_version_);
}

}  // namespace pando
