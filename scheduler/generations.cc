#include "scheduler/generations.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "scheduler/placement/placement.h"

namespace pando {
namespace {

// A snapshot that no server can read, though none says that it is damaged, is tried so often.
constexpr uint32_t kRestoreRoundsMax = 3;
constexpr Micros kRestoreRetry = std::chrono::seconds(1);

}  // namespace

void Generations::OnMemberReady(Micros now) {
  if (run_.phase.is_gathering()) StartWhenComplete(now);
  if (run_.phase.is_running()) parts_.view_maker.RequestViewForGroup(now);
}

void Generations::StartWhenComplete(Micros now) {
  const Members& members = run_.members();
  if (members.CountReady(Role::kServer) < run_.plan.job.servers) return;
  if (members.CountReady(Role::kWorker) < run_.plan.job.workers) return;
  run_.phase.StartTraining(now);
  Start(now);
  const uint64_t steps = run_.plan.steps.step_count();
  run_.outbox.Tell(now, "training", "", "all processes are ready; {} steps", steps);
  const View& view = run_.view();
  if (view.generation == 0) return;
  run_.outbox.TellNotable(
      now, "resumed", "", "{}",
      view.restore == SnapshotRef{}
          ? "the run has no snapshot and restarts at step 0"
          : fmt::format("the run continues from the snapshot of version {} of {}",
                        view.restore.version.value(), steps));
}

void Generations::Tick(Micros now) {
  if (!run_.membership.HasHeardAll()) return;
  if (!run_.rollback.IsPossible(now, run_.plan.job.servers)) return;
  const std::string reason = run_.rollback.Take();
  run_.phase.TrainAgain();
  Start(now);
  const View& view = run_.view();
  run_.outbox.TellNotable(now, "rollback", "", "generation {} begins from version {} ({})",
                          view.generation, view.restore.version.value(), reason);
}

void Generations::Start(Micros now) {
  View next = FirstView(now);
  const SnapshotRef restore = next.restore;
  run_.progress.StartGeneration(restore.version);
  parts_.verification.StartGeneration(StepReading(restore.version));
  parts_.snapshots.ledger().StartGeneration(next.generation, restore);
  parts_.view_maker.StartGeneration();
  parts_.silences.StartGeneration();
  run_.views.DropRequest();
  parts_.evaluations.StartGeneration();
  parts_.requests.StartGeneration(now);
  parts_.final_weights.StartGeneration();
  run_.faults.OnRollback();
  // Members that are avoided now get work again later.
  run_.views.RequestView(now + ViewMaker::kMoveInterval);
  parts_.view_maker.Publish(now, std::move(next));
}

// The first view of all, or the first after a rollback.
View Generations::FirstView(Micros now) {
  View next{.id = run_.views.NextId()};
  const bool is_first = run_.view().shards.empty();
  if (!is_first) {
    next.generation = run_.views.NextGeneration();
    next.restore = parts_.snapshots.ledger().RestorePoint(parts_.verification.RestoreBound());
  }
  next.nodes = run_.members().NodeInfos();
  next.shards =
      PlaceShards(run_.plan.shards, RestoringServers(now, next.restore), run_.plan.job.replicas);
  next.owners = parts_.owners.FirstOwners(now);
  return next;
}

// ---- snapshots that cannot be read -------------------------------------------------------------

void Generations::OnRestoreFailed(Micros now, const PeerId& from, const RestoreFailed& failed) {
  const SnapshotRef restore = run_.view().restore;
  if (!run_.phase.is_running() || failed.snapshot != restore || restore == SnapshotRef{}) return;
  const Member& server = run_.Sender(from);
  if (unreadable_.snapshot != restore) unreadable_ = {.snapshot = restore};
  if (!unreadable_.servers.insert(server.peer.node).second) return;  // repeated
  const std::string text =
      fmt::format("{} on {} cannot restore version {}: {}", server.Name(), server.registration.host,
                  restore.version.value(), failed.text);
  const bool has_other = !HaveAllFailed();
  if (!has_other) ++unreadable_.rounds;
  const bool is_lost = failed.is_corrupt || unreadable_.rounds >= kRestoreRoundsMax;
  if (is_lost) {
    run_.outbox.TellNotable(now, "snapshot-unreadable", server.Name(),
                            "{}; it will not be used again, and its files are left as they are",
                            text);
    parts_.snapshots.Forget(now, restore);
  } else {
    run_.outbox.TellNotable(now, "restore-failed", server.Name(), "{}", text);
  }
  run_.rollback.Plan(now, text);
  if (!is_lost && !has_other) run_.rollback.DelayUntil(now + kRestoreRetry);
}

void Generations::OnCommitted(Version committed) {
  if (committed > run_.view().restore.version) unreadable_ = {};
}

bool Generations::HaveAllFailed() const {
  const std::vector<PlacementServer> servers = run_.members().Servers({});
  return std::ranges::all_of(servers, [&](const PlacementServer& server) {
    return server.is_leaving || unreadable_.servers.contains(server.peer.node);
  });
}

// The servers that get the shards when a generation begins from `restore`: those that have not
// failed to read it, or all of them once more if all have failed.
std::vector<PlacementServer> Generations::RestoringServers(Micros now, const SnapshotRef& restore) {
  std::vector<PlacementServer> servers = run_.members().Servers(parts_.silences.Avoided(now));
  if (unreadable_.snapshot != restore) return servers;
  if (HaveAllFailed()) unreadable_.servers.clear();
  std::erase_if(servers, [&](const PlacementServer& server) {
    return unreadable_.servers.contains(server.peer.node);
  });
  return servers;
}

}  // namespace pando
