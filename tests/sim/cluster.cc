#include "tests/sim/cluster.h"

#include <algorithm>
#include <utility>

#include "tests/sim/trace.h"

namespace pando::sim {
namespace {

using std::chrono::seconds;

// I7: when faults stop, the job ends within this time: leases, retries up to 4 s apart, transfers
// and restores, and all its steps once more, by one worker, the slowest; one of them was begun
// while that was slowed down.
Micros LivenessBound(const Swarm& swarm, const JobPlan& plan, Micros micro_batch_time) {
  const auto micro_batches = static_cast<int64_t>(plan.steps.step_count() * plan.job.micro_batches);
  const auto slowest = static_cast<int64_t>(swarm.speed_spread + 1);
  const auto replays = swarm.has_flip ? 4 : 1;
  const bool slows_down = swarm.kinds[static_cast<size_t>(FaultKind::kSlowWorker)];
  const int64_t slowed = slows_down ? Faults::kSlownessMax * plan.job.micro_batches : 0;
  const Micros of_a_message = swarm.network.delay_max;
  return seconds(60) + micro_batch_time * (micro_batches * replays + slowed) * slowest +
         of_a_message * 20 * static_cast<int64_t>(plan.steps.step_count());
}

}  // namespace

Cluster::Cluster(const Options& options)
    : world_(options.seed),
      swarm_(DrawSwarm(world_.chance(), options.focus)),
      plan_(DrawPlan(world_.chance(), swarm_, options.focus)),
      reference_(plan_),
      network_(world_, swarm_.network),
      disk_(world_, swarm_.disk_time_max),
      journal_(world_),
      seal_(options.seed),
      stage_{world_,   swarm_, network_, disk_, journal_, swarm_.has_keys ? &seal_ : nullptr,
             coverage_},
      checker_({world_, plan_, disk_, processes_,
                swarm_.network.loss > 0 || swarm_.network.straggle > 0},
               reference_, coverage_),
      population_(stage_, {plan_, processes_, checker_, *this, *this}),
      wrong_bits_(stage_, population_, checker_),
      faults_(stage_, population_),
      hostile_(stage_, population_),
      hostile_member_(stage_, population_),
      forger_(stage_, population_) {
  network_.SetTrace(options.is_tracing);
  network_.SetWatch([this](Envelope& envelope) { return OnSent(envelope); });
  NoteDrawn(options.seed);
  if (swarm_.shares_memory) network_.shared_memory().Start();
  if (plan_.job.parameter_residency == ParameterResidency::kLayer) coverage_.Note(Event::kLayers);
  if (plan_.job.optimizer.loss_scale.is_on) coverage_.Note(Event::kScaling);
  population_.Begin();
  faults_.Plan();
  hostile_.Begin();
  hostile_member_.Begin();
  forger_.Begin();
  world_.After(swarm_.fault_phase, [this] { Heal(); });
}

Cluster::~Cluster() = default;

void Cluster::NoteDrawn(uint64_t seed) const {
  stage_.Note(
      "seed " + std::to_string(seed) + ": " + std::to_string(plan_.steps.step_count()) +
      " steps of " + std::to_string(plan_.job.micro_batches) + " micro-batches, " +
      std::to_string(plan_.shards.shard_count()) + " shards, " + std::to_string(plan_.job.servers) +
      " servers, " + std::to_string(plan_.job.workers) + " workers, replicas " +
      std::to_string(plan_.job.replicas) + ", snapshot.every " +
      std::to_string(plan_.job.snapshot_every) + ", lease " + std::to_string(plan_.job.lease_ms) +
      " ms, " + std::to_string(population_.micro_batch_time().count()) +
      " us a micro-batch, faults till " + std::to_string(swarm_.fault_phase.count()) + " us" +
      (plan_.job.parameter_residency == ParameterResidency::kLayer ? ", layer residency" : "") +
      (plan_.job.optimizer.loss_scale.is_on ? ", loss scaling" : "") +
      (swarm_.shares_memory ? ", shared memory" : "") +
      (plan_.may_sum_near() ? ", sums on hosts or in racks" : ""));
}

void Cluster::Heal() {
  stage_.Note("faults end");
  faults_.End();
  network_.Heal();
  disk_.Heal();
  liveness_deadline_ =
      world_.now() + LivenessBound(swarm_, population_.plan(), population_.micro_batch_time());
  population_.Heal();
}

bool Cluster::IsOver() const {
  return journal_.state() && journal_.state()->is_completed &&
         checker_.results().has_final_weights() && population_.HasLeaderLeft();
}

Outcome Cluster::Run() {
  Verdict& verdict = checker_.verdict();
  const SharedMemory& shared = network_.shared_memory();
  while (!verdict.failure() && !IsOver() && !wrong_bits_.is_unnoticed() && world_.Step()) {
    WatchForStop();
    if (shared.is_torn()) verdict.Fail("P42: a reader has had other bytes than were sent");
    if (liveness_deadline_ != Micros(0) && world_.now() > liveness_deadline_) {
      verdict.Fail("I7: not finished in time (" + WhereItHangs() + ")");
    }
  }
  if (!verdict.failure() && !wrong_bits_.is_unnoticed()) checker_.CheckEnd(*journal_.state());
  coverage_.messages = network_.counts();
  if (seal_.forged_count > 0) coverage_.Note(Event::kForgedView);
  if (shared.read_count() > 0) coverage_.Note(Event::kShared);
  if (shared.overtaken_count() > 0) coverage_.Note(Event::kOvertaken);
  if (disk_.failed_count() + disk_.lost_count() > 0) coverage_.Note(Event::kSnapshotFailure);
  return {.ok = !verdict.failure(),
          .failure = verdict.failure().value_or(""),
          .trace_hash = network_.trace_hash(),
          .message_count = network_.message_count(),
          .finished_at = world_.now(),
          .coverage = coverage_};
}

void Cluster::WatchForStop() {
  Process* leader = population_.Leader();
  if (leader == nullptr) return;
  if (stopping_.scheduler != leader->incarnation()) stopping_ = {leader->incarnation()};
  if (leader->scheduler()->phase() >= Scheduler::Phase::kStopping) return;
  if (stopping_.asked_at != Micros(0)) return;
  stopping_.was_training = leader->scheduler()->phase() == Scheduler::Phase::kTraining;
  stopping_.committed = leader->scheduler()->committed();
  if (journal_.state()) stopping_.generation = journal_.state()->view.generation;
}

// P33: what was committed when the run was asked to stop is in a snapshot, or could not be stored
// in time. A second command ends the run at once.
void Cluster::CheckStop(uint32_t stops) {
  coverage_.Note(Event::kStopped);
  if (!stopping_.was_training || stops > 1) return;
  const bool was_asked = stopping_.asked_at != Micros(0);
  if (was_asked && world_.now() - stopping_.asked_at >= LastSnapshot::kPatience) return;
  const SchedulerState& state = *journal_.state();
  const bool may_fail = stopping_.has_given_up || disk_.failed_count() + disk_.lost_count() > 0;
  if (was_asked && (may_fail || state.view.generation != stopping_.generation)) return;
  Version stored = state.view.restore.version;
  for (const SnapshotManifest& manifest : state.snapshots)
    stored = std::max(stored, manifest.snapshot.version);
  if (stored < stopping_.committed)
    checker_.verdict().Fail("P33: the run is stopped, and no snapshot has its last steps");
}

std::string Cluster::WhereItHangs() {
  std::string text;
  if (Process* leader = population_.Leader()) {
    text = "scheduler in phase " + std::to_string(static_cast<int>(leader->scheduler()->phase())) +
           ", committed " + std::to_string(leader->scheduler()->committed().value());
  }
  if (journal_.state()) {
    const View& view = journal_.state()->view;
    text += ", view " + std::to_string(view.id.term) + "." + std::to_string(view.id.number);
    stage_.Note(ViewText(view));
  }
  for (Process* worker : population_.Living(Role::kWorker)) {
    if (worker->computer() == nullptr) continue;
    stage_.Note(worker->seat().name + " computes: " + worker->computer()->StateText());
  }
  for (Role role : {Role::kServer, Role::kWorker}) {
    text += ", " + std::to_string(population_.Living(role).size()) +
            (role == Role::kServer ? " servers" : " workers");
  }
  return text;
}

// False: the sender dies before the message leaves.
bool Cluster::OnSent(Envelope& envelope) {
  faults_.OnSent(envelope);
  const bool is_of_a_process = envelope.sender.node != kUnknownNode;
  if (is_of_a_process && population_.Find(envelope.sender.incarnation) == nullptr) return false;
  if (std::holds_alternative<Root>(envelope.message)) wrong_bits_.TamperWithRoot(envelope);
  hostile_member_.OnSent(envelope);
  checker_.OnSent(envelope);
  return true;
}

// ---- what the scheduler tells ------------------------------------------------------------------

void Cluster::OnEvent(Micros now, const RunEvent& event) {
  if (event.name == "journal-behind") coverage_.Note(Event::kLostView);
  if (event.name == "outvoted") coverage_.Note(Event::kOutvoted);
  if (event.name == "last-snapshot") stopping_.asked_at = now;
  if (event.name == "snapshot-failed") stopping_.has_given_up = true;
  if (event.name == "dispute" && !swarm_.has_flip)
    checker_.verdict().Fail("P46: a dispute about gradients that are all right");
  if (event.text.find(HostileMember::kLie) != std::string::npos)
    checker_.verdict().Fail("P46: a lie is believed: " + event.text);
  stage_.Note("event " + event.name + " " + event.node + ": " + event.text);
}

void Cluster::OnStepMetrics(Micros, const StepMetrics& metrics) {
  checker_.results().OnStepMetrics(metrics);
}

void Cluster::OnEvaluation(Micros, const EvaluationSummary& summary) {
  checker_.OnEvaluation(summary);
}

void Cluster::OnFault(Micros, const FaultRecord&) {}

std::optional<SnapshotCheck> Cluster::OnSnapshotRipe(Micros, const SnapshotManifest& manifest) {
  return disk_.Check(manifest);
}

void Cluster::OnSnapshot(Micros, const SnapshotManifest& manifest) {
  stage_.Note("snapshot " + std::to_string(manifest.snapshot.version.value()) + " is complete");
}

void Cluster::OnSnapshotDropped(Micros, const SnapshotManifest& manifest) {
  if (journal_.state()) checker_.journal().OnSnapshotDropped(manifest, *journal_.state());
  disk_.Drop(manifest);
}

void Cluster::OnSnapshotForgotten(Micros, const SnapshotRef& snapshot) {
  stage_.Note("snapshot " + std::to_string(snapshot.version.value()) + " is forgotten");
  checker_.journal().NoteForgotten(snapshot);
}

Status Cluster::OnFinalWeights(Micros, Version version, const SnapshotManifest*,
                               const FloatBuffer& flat) {
  if (disk_.is_troubled()) return NoSpace("the simulated disk is full");
  checker_.results().OnFinalWeights(version, flat);
  return Status();
}

// ---- what the processes tell -------------------------------------------------------------------

void Cluster::OnLaneEvent(Process& process, const Lane& lane) {
  wrong_bits_.FlipMemory(process, lane);
  if (lane.has_view()) checker_.OnEntered(lane.self(), lane.view());
  checker_.versions().OnLaneEvent(lane);
}

void Cluster::OnSessionEvent(Process& process, const Session& session) {
  if (session.view().id.number != 0) checker_.OnEntered(process.self(), session.view());
  checker_.versions().OnSessionEvent(session);
}

void Cluster::OnJoinAgain(Process& process) {
  stage_.Note(process.seat().name + " joins again");
  coverage_.Note(Event::kRejoin);
  checker_.OnLost(process);
}

void Cluster::OnLeft(Process& process) {
  stage_.Note(process.seat().name + " has left");
  checker_.OnLeft(process);
  if (process.seat().role == Role::kScheduler) {
    if (process.scheduler()->is_fenced()) return;
    const Stop& stop = process.scheduler()->stop();
    if (stop.reason == StopReason::kInterrupted) {
      const uint32_t stops = population_.StopsAsked(process);
      if (stops == 0) return;
      CheckStop(stops);
      stopping_ = {};
      return world_.After(Micros(0), [this] { population_.PowerOff(); });
    }
    if (stop.reason != StopReason::kCompleted)
      checker_.verdict().Fail("the job ended: " + stop.text);
    return;
  }
  if (process.left_by() == StopReason::kDrained) wrong_bits_.OnDrained(process);
}

void Cluster::BeforeCommit(Process& process) {
  population_.OnCommit(process, Population::CommitPoint::kBefore);
}

void Cluster::OnCommitted(Process& process, const std::optional<SchedulerState>& before,
                          bool is_taken) {
  if (!is_taken) {
    stage_.Note(process.seat().name + " is shut out of the journal");
    return coverage_.Note(Event::kFence);
  }
  if (network_.is_tracing() && (!before || before->view.id != journal_.state()->view.id)) {
    stage_.Note("journal: " + ViewText(journal_.state()->view));
  }
  hostile_member_.OnView(journal_.state()->view);
  checker_.journal().NoteFailedRestores(disk_.TakeUnread());
  checker_.journal().OnCommitted(before, *journal_.state());
  population_.OnCommit(process, Population::CommitPoint::kAfter);
}

bool Cluster::FlipsBit(Process& process, Step step, MicroBatch m) {
  return wrong_bits_.FlipsBit(process, step, m);
}

void Cluster::OnUnverified(Step step, MicroBatch m) { wrong_bits_.OnUnverified(step, m); }

}  // namespace pando::sim
