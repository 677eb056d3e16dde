// The half of Cluster that gets events: from the network, the scheduler and the processes.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

#include "common/float_buffer.h"
#include "proto/assignment.h"
#include "tests/sim/cluster.h"
#include "tests/sim/trace.h"

namespace pando::sim {

// ---- what is sent ------------------------------------------------------------------------------

// False: the sender dies before it leaves.
bool Cluster::OnSent(Envelope& envelope) {
  faults_.OnSent(envelope);
  const Incarnation sender = envelope.sender.incarnation;
  const bool is_of_a_process = envelope.sender.node != kUnknownNode;
  if (is_of_a_process && FindAt(sender) == nullptr) return false;
  if (auto* root = std::get_if<Root>(&envelope.message)) TamperWithRoot(*root);
  checker_.OnSent(envelope);
  return true;
}

// One wrong bit in what one backup is given: it makes another record than the others (P8).
void Cluster::TamperWithRoot(Root& root) {
  if (!swarm_.has_divergence || has_tampered_ || is_healed_) return;
  if (!world_.chance().OneIn(0.05) || root.items.empty()) return;
  RootItem& item = root.items[world_.chance().Below(root.items.size())];
  const auto floats = item.payload.floats();
  auto copy = std::make_shared<FloatBuffer>(floats.size());
  std::ranges::copy(floats, copy->data());
  copy->data()[0] = copy->data()[0] == 0.0f ? 1.0f : -copy->data()[0];
  item.payload = ToBlob(std::move(copy));
  has_tampered_ = true;
  checker_.NoteDivergence();
  coverage_.Note(Event::kDivergence);
  Note("a wrong bit goes to a backup of shard " + std::to_string(item.shard.value()));
}

// P41: one worker, once, in one of its micro-batches that another one verifies.
bool Cluster::FlipsBit(Process& process, Step step, MicroBatch m) {
  if (!swarm_.has_flip || flipped_ || !plan_->IsVerified(step, m)) return false;
  const View& view = process.view();
  if (m.value() >= view.owners.size() || step.value() < 2) return false;
  if (ComputesAt(view.owners[m.value()], step) != process.node()) return false;
  if (FindVerifier(view, step, m) == kUnknownNode || !world_.chance().OneIn(0.2)) return false;
  flipped_.emplace(step, m);
  flipper_ = &process;
  checker_.NoteFlip();
  coverage_.Note(Event::kFlip);
  Note(process.seat().name + " computes step " + std::to_string(step.value()) + ", micro-batch " +
       std::to_string(m.value()) + " wrong");
  return true;
}

// With layer residency the parameters may be gone first: then nothing is compared, and the wrong
// bits stay.
void Cluster::OnUnverified(Step step, MicroBatch m) {
  if (flipped_ != std::pair(step, m)) return;
  is_flip_unnoticed_ = true;
  coverage_.Note(Event::kFlipUnnoticed);
  Note("the wrong bit of step " + std::to_string(step.value()) + " is not compared with any");
}

// ---- what the scheduler tells ------------------------------------------------------------------

void Cluster::OnEvent(Micros, const RunEvent& event) {
  Note("event " + event.name + " " + event.node + ": " + event.text);
}

void Cluster::OnStepMetrics(Micros, const StepMetrics& metrics) { checker_.OnStepMetrics(metrics); }

void Cluster::OnEvaluation(Micros, const EvaluationSummary& summary) {
  checker_.OnEvaluation(summary);
}

void Cluster::OnFault(Micros, const FaultRecord&) {}

Status Cluster::OnSnapshotRipe(Micros, const SnapshotManifest&) { return Status(); }

void Cluster::OnSnapshot(Micros, const SnapshotManifest& manifest) {
  Note("snapshot " + std::to_string(manifest.snapshot.version.value()) + " is complete");
}

void Cluster::OnSnapshotDropped(Micros, const SnapshotManifest& manifest) {
  if (journal_.state()) checker_.OnSnapshotDropped(manifest, *journal_.state());
  disk_.Drop(manifest);
}

void Cluster::OnSnapshotForgotten(Micros, const SnapshotRef& snapshot) {
  Note("snapshot " + std::to_string(snapshot.version.value()) + " is forgotten");
  checker_.NoteForgotten(snapshot);
}

Status Cluster::OnFinalWeights(Micros, Version version, const FloatBuffer& flat) {
  if (disk_.is_troubled()) return NoSpace("the simulated disk is full");
  checker_.OnFinalWeights(version, flat);
  return Status();
}

// ---- what the processes tell -------------------------------------------------------------------

void Cluster::OnLaneEvent(Process&, const Lane& lane) { checker_.OnLaneEvent(lane); }

void Cluster::OnSessionEvent(Process&, const Session& session) { checker_.OnSessionEvent(session); }

void Cluster::OnJoinAgain(Process& process) {
  Note(process.seat().name + " joins again");
  coverage_.Note(Event::kRejoin);
  checker_.OnLost(process);
}

void Cluster::OnLeft(Process& process) {
  Note(process.seat().name + " has left");
  checker_.OnLeft(process);
  if (process.seat().role == Role::kScheduler) {
    if (process.scheduler()->fenced()) return;
    const Stop& stop = process.scheduler()->stop();
    if (stop.reason != StopReason::kCompleted) checker_.Fail("the job ended: " + stop.text);
    return;
  }
  const bool is_drained = process.left_by() == StopReason::kDrained;
  if (is_drained) coverage_.Note(Event::kDrained);
  if (is_drained && &process == flipper_) coverage_.Note(Event::kFlipDrained);
}

void Cluster::BeforeCommit(Process& process) {
  if (commit_death_ != CommitDeath::kBefore || &process != Leader()) return;
  commit_death_ = CommitDeath::kNone;
  coverage_.Note(Event::kUncommittedDeath);
  Kill(process);
}

void Cluster::OnCommitted(Process& process, const std::optional<SchedulerState>& before,
                          bool is_taken) {
  if (!is_taken) {
    Note(process.seat().name + " is shut out of the journal");
    return coverage_.Note(Event::kFence);
  }
  if (network_.is_tracing() && (!before || before->view.id != journal_.state()->view.id)) {
    Note("journal: " + ViewText(journal_.state()->view));
  }
  if (disk_.TakeUnread()) checker_.NoteFailedRestore();
  checker_.OnCommitted(before, *journal_.state());
  if (commit_death_ != CommitDeath::kAfter || &process != Leader()) return;
  commit_death_ = CommitDeath::kNone;
  coverage_.Note(Event::kUncommittedDeath);
  Kill(process);
}

}  // namespace pando::sim
