#include "tests/sim/lead/leading_life.h"

#include <utility>

#include "tests/sim/process.h"

namespace pando::sim {

LeadingLife::LeadingLife(Process& process, const JobPlan& plan, const ProcessAround& around,
                         ProcessLoops& loops, const Start& start)
    : process_(process), around_(around) {
  const PeerId self = process.self();
  Loop& loop = loops.Add(process.is_stopped());
  if (around.copy_lag_max > Micros(0)) {
    copies_ = std::make_unique<VirtualCopies>(VirtualCopies::Around{
        .world = around.world,
        .lag_max = around.copy_lag_max,
        .look = around.look,
        .is_running = [&process] { return process.is_alive() && !process.is_stopped(); },
        .on_reached = [this, &loop] { loop.Post([this] { gate_->Release(); }); }});
  }
  gate_ = std::make_unique<LeaderGate>(loop.outbox(), copies_.get());
  auto core = std::make_unique<Scheduler>(
      Scheduler::Options{.self = self,
                         .job = kJob,
                         .job_toml = "simulated",
                         .snapshot_dir = "simulated",
                         .next_row = start.next_row,
                         .state = around.journal.Open(process.incarnation()),
                         .is_resumed = start.is_resumed,
                         .seal = around.seal},
      plan, *this, *this, *gate_);
  scheduler_ = core.get();
  if (around.files_travel) {
    files_ =
        std::make_unique<SchedulerFiles>(VirtualFolder(around.disk, [this] { return counts(); }),
                                         loops.Add(process.is_stopped()), self, kJob);
    loops.Listen(files_->loop(), files_->self());
  }
  loop.SetCore(std::move(core), {.after_tick = [this] {
                 if (files_ != nullptr) files_->Admit(*scheduler_);
                 if (scheduler_->is_finished() || scheduler_->is_fenced()) process_.Leave();
               }});
  around.network.SetScheduler(self);
  around.network.Attach(process.seat().place, self, [this, &loop](const Envelope& envelope) {
    loop.Post([this, envelope] { scheduler_->OnMessage(around_.world.now(), envelope); });
  });
  loop.WakeSoon();
}

LeadingLife::~LeadingLife() = default;

bool LeadingLife::counts() const {
  return process_.is_alive() && (copies_ == nullptr || !copies_->is_deposed());
}

// ---- the journal -------------------------------------------------------------------------------

Status LeadingLife::Commit(const SchedulerState& state) {
  if (process_.is_alive()) around_.keeper.BeforeCommit(process_);
  if (!process_.is_alive()) return {};  // dead: what it believes goes nowhere
  const std::optional<SchedulerState> before = around_.journal.state();
  const bool is_taken = around_.journal.Commit(process_.incarnation(), state);
  around_.keeper.OnCommitted(process_, before, is_taken);
  return is_taken ? Status() : Unavailable("another scheduler leads this run");
}

// ---- the observer ------------------------------------------------------------------------------

void LeadingLife::OnEvent(Micros now, const RunEvent& event) {
  if (counts()) around_.observer.OnEvent(now, event);
}

void LeadingLife::OnStepMetrics(Micros now, const StepMetrics& metrics) {
  if (counts()) around_.observer.OnStepMetrics(now, metrics);
}

void LeadingLife::OnEvaluation(Micros now, const EvaluationSummary& summary) {
  if (counts()) around_.observer.OnEvaluation(now, summary);
}

void LeadingLife::OnEvaluationsDropped(Micros now, Version last_good) {
  if (counts()) around_.observer.OnEvaluationsDropped(now, last_good);
}

std::optional<SnapshotCheck> LeadingLife::OnSnapshotRipe(Micros now,
                                                         const SnapshotManifest& manifest) {
  if (!counts()) return std::nullopt;
  return gate_->AwaitFiles(manifest.snapshot,
                           [&] { return around_.observer.OnSnapshotRipe(now, manifest); });
}

void LeadingLife::OnSnapshot(Micros now, const SnapshotManifest& manifest) {
  if (counts()) around_.observer.OnSnapshot(now, manifest);
}

void LeadingLife::OnSnapshotDropped(Micros now, const SnapshotManifest& manifest) {
  if (counts()) around_.observer.OnSnapshotDropped(now, manifest);
}

void LeadingLife::OnFault(Micros now, const FaultRecord& record) {
  if (counts()) around_.observer.OnFault(now, record);
}

void LeadingLife::OnSnapshotForgotten(Micros now, const SnapshotRef& snapshot) {
  if (counts()) around_.observer.OnSnapshotForgotten(now, snapshot);
}

Status LeadingLife::OnFinalWeights(Micros now, Version version, const SnapshotManifest* stored,
                                   const FloatBuffer& flat) {
  if (!process_.is_alive()) return Status();
  if (!counts()) return Unavailable("another scheduler leads this run");
  PANDO_RETURN_IF_ERROR(around_.observer.OnFinalWeights(now, version, stored, flat));
  if (copies_ == nullptr) return Status();
  if (!weights_mark_) weights_mark_ = copies_->Mark();
  if (copies_->HasReached(*weights_mark_)) return Status();
  return Unavailable("the standby does not have the final weights yet");
}

}  // namespace pando::sim
