#include "scheduler/run_progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "common/mutation.h"
#include "proto/ownership.h"
#include "scheduler/run_facts.h"

namespace pando {
namespace {

// A rollback waits this long for the servers that the job wants: a supervisor may be about to start
// one again.
constexpr Micros kRestartGrace = std::chrono::seconds(1);
// A rollback does not repair two machines that keep making different versions.
constexpr uint32_t kDivergencesMax = 3;

}  // namespace

void Rollback::Plan(Micros now, const std::string& reason) {
  if (pending_) return;
  pending_ = Pending{reason, now};
  run_.outbox.TellNotable(now, "lost", "", "{}: the run restarts from its last snapshot", reason);
}

bool Rollback::IsPossible(Micros now, uint32_t wanted) const {
  if (!pending_) return false;
  const size_t servers = run_.members().CountReady(Role::kServer);
  const bool has_waited = now - pending_->since >= kRestartGrace;
  if (servers == 0 || (servers < wanted && !has_waited)) return false;
  return now >= pending_->not_before;
}

// Either the journal's end was lost with a disk, or another scheduler leads the run. In the second
// case the journal refuses us here.
void Rollback::OnNewsBeyond(Micros now, const Member& member, ViewId id, uint32_t generation) {
  if (!run_.views.IsBelievable(id, generation)) {
    const std::string text = fmt::format(
        "{} names view {}.{} of generation {}, which this run cannot have reached; test the memory "
        "of {}",
        member.Name(), id.term, id.number, generation, member.registration.host);
    run_.outbox.TellNotable(now, "refused", member.Name(), "{}", text);
    // A bit may have flipped: it may join again, once.
    const bool is_first = doubted_.insert(ProcessFor(member.registration)).second;
    for (const PeerId& lane : member.Peers())
      run_.outbox.Send(lane,
                       Refused{text, is_first ? RefusalKind::kGivenUp : RefusalKind::kNotThisOne});
    return run_.membership.OnDeath(now, member.peer.node, "refused", "message");
  }
  run_.views.OnNewsBeyond(id, generation);
  if (pending_ || !run_.outbox.Commit()) return;
  run_.outbox.TellNotable(now, "journal-behind", member.Name(),
                          "{} has a view that is not in the journal", member.Name());
  Plan(now, "the journal had lost its last views");
}

// P8: two replicas cannot say which of them is wrong.
void Rollback::OnDivergence(Micros now, const PeerId& from, const Divergence& divergence) {
  const View& view = run_.view();
  const uint32_t shard = divergence.shard.value();
  if (pending_ || !run_.phase.is_running() || shard >= view.shards.size()) return;
  if (view.shards[shard].primary != from) return;
  const Member* backup = run_.members().Find(divergence.backup.incarnation);
  if (backup == nullptr) return;
  const std::string text =
      fmt::format("{} and {} have made different versions {} of shard {}", run_.Sender(from).Name(),
                  backup->Name(), divergence.version.value(), shard);
  run_.outbox.TellNotable(now, "divergence", backup->Name(), "{}", text);
  if (++divergence_count_ > kDivergencesMax)
    return run_.phase.End(now, StopReason::kFailed,
                          text + " again; test the memory of these machines");
  Plan(now, text);
}

void RunPhase::StartTraining(Micros now) {
  phase_ = SchedulerPhase::kTraining;
  training_since_ = now;
}

void RunPhase::StartCollecting(Micros now) {
  phase_ = SchedulerPhase::kCollecting;
  if (!training_time_) training_time_ = TrainingTime(now);
}

void RunPhase::TrainAgain() {
  phase_ = SchedulerPhase::kTraining;
  training_time_.reset();
}

void RunPhase::End(Micros now, StopReason reason, std::string text) {
  if (is_ending()) return;
  if (!training_time_) training_time_ = TrainingTime(now);
  phase_ = SchedulerPhase::kStopping;
  stop_ = Stop{reason, std::move(text)};
  stop_at_ = now;
  outbox_.RepeatAt(now);  // sends it
}

void RunPhase::EndForLostMember(Micros now, std::string text) {
  has_lost_member_ = true;
  End(now, StopReason::kFailed, std::move(text));
}

void RunPhase::FinishWhenLeft(Micros now, bool have_all_left) {
  if (phase_ != SchedulerPhase::kStopping) return;
  if (have_all_left || now - stop_at_ >= stop_grace_) phase_ = SchedulerPhase::kFinished;
}

Micros RunPhase::NextDeadline() const {
  return phase_ == SchedulerPhase::kStopping ? stop_at_ + stop_grace_ : kNever;
}

Micros RunPhase::TrainingTime(Micros now) const {
  if (is_gathering()) return Micros(0);
  if (training_time_) return *training_time_;
  const bool stands_still = evaluating_since_ && is_standstill_;
  const Micros standing = stands_still ? now - *evaluating_since_ : Micros(0);
  return now - training_since_ - standstill_ - standing;
}

void RunPhase::OnEvaluationStarted(Micros now, bool is_beside_steps) {
  evaluating_since_ = now;
  is_standstill_ = !is_beside_steps;
}

void RunPhase::OnEvaluationDone(Micros now) {
  const Micros time = now - *evaluating_since_;
  evaluation_time_ += time;
  if (is_standstill_) standstill_ += time;
  evaluating_since_.reset();
}

RunProgress::RunProgress(RunFacts& run, Step next_row)
    : run_(run),
      schedule_(run.plan.job.optimizer, run.plan.job.schedule, run.plan.steps.step_count()),
      committed_(run.view().restore.version),
      next_row_(next_row) {}

bool RunProgress::OnProgress(Micros now, const Envelope& envelope, const Progress& progress) {
  if (progress.committed > run_.plan.steps.final_version()) return false;
  const bool is_of_view = envelope.view == run_.view().id;
  bool have_all_reported = false;
  if (is_of_view && primary_lanes_.contains(envelope.sender)) {
    Version& committed = lane_committed_[envelope.sender];
    committed = std::max(committed, progress.committed);
    have_all_reported = LearnCommitted(now);
  }
  if (HasOwnRows(envelope.sender, progress)) TakeRows(now, progress);
  // A report of another view is not acknowledged: the lane repeats it under the next view.
  run_.outbox.Send(envelope.sender,
                   ProgressAck{is_of_view ? progress.committed : Version(0), next_row_});
  return have_all_reported;
}

// P46: rows come from the metric shard's primary, of versions that it says are committed.
bool RunProgress::HasOwnRows(const PeerId& from, const Progress& progress) const {
  if (progress.rows.empty()) return false;
  if (Mutated(Mutation::kAnyRow)) return true;
  const bool are_committed = std::ranges::all_of(progress.rows, [&](const StepMetrics& row) {
    return row.step < StepReading(progress.committed);
  });
  return are_committed && IsPrimary(run_.view(), run_.plan.metric_shard(), from);
}

// An earlier life of the scheduler knows the rows below the first, or they are lost with a server.
void RunProgress::TakeRows(Micros now, const Progress& progress) {
  next_row_ = std::max(next_row_, progress.rows.front().step);
  made_ = progress.committed;
  for (const StepMetrics& row : progress.rows) {
    if (row.step != next_row_) continue;
    run_.observer.OnStepMetrics(now, row);
    next_row_ = NextStep(next_row_);
  }
}

bool RunProgress::LearnCommitted(Micros now) {
  if (lane_committed_.size() != primary_lanes_.size()) return false;
  Version lowest = run_.plan.steps.final_version();
  for (const auto& [lane, version] : lane_committed_) lowest = std::min(lowest, version);
  committed_ = std::max(committed_, lowest);
  pace_.OnCommitted(now, committed_);
  run_.faults.OnProgress(now, run_.view().id, committed_,
                         committed_ == run_.history.final_version());
  return true;
}

void RunProgress::OnScalarsRequest(const PeerId& from, const ScalarsRequest& request) {
  if (request.first.value() % kScalarsPerBlock != 0) return;
  SendScalars(from, request.first);
}

Version RunProgress::ScalarsEnd() const {
  const bool is_open =
      run_.plan.job.early_stop_patience == 0 || Mutated(Mutation::kNoDecisionBarrier);
  if (is_open) return run_.plan.steps.final_version();
  return std::min(run_.history.final_version(), run_.history.NextDue());
}

void RunProgress::SendScalars(const PeerId& lane, Step first) {
  const uint64_t end = ScalarsEnd().value();
  if (first.value() >= end) return;
  const uint64_t count = std::min(kScalarsPerBlock, end - first.value());
  run_.outbox.Send(lane, Scalars{first, schedule_.Block(first, count)});
}

void RunProgress::OnView() {
  primary_lanes_.clear();
  lane_committed_.clear();
  for (const ShardPlacement& placement : run_.view().shards)
    primary_lanes_.insert(placement.primary);
}

void RunProgress::StartGeneration(Version restored) {
  committed_ = restored;
  step_at_start_ = Step(0);
}

Step RunProgress::StepReached() const { return std::max(StepReading(committed_), step_at_start_); }

}  // namespace pando
