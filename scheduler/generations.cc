#include "scheduler/generations.h"

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
  if (parts_.phase.is_gathering()) StartWhenComplete(now);
  if (parts_.phase.is_running()) parts_.view_maker.RequestViewForGroup(now);
}

void Generations::StartWhenComplete(Micros now) {
  const Members& members = parts_.membership.members();
  if (members.CountReady(Role::kServer) < plan_.job.servers) return;
  if (members.CountReady(Role::kWorker) < plan_.job.workers) return;
  parts_.phase.StartTraining(now);
  Start(now);
  const std::string steps = std::to_string(plan_.steps.step_count());
  parts_.outbox.Tell(now, "training", "", "all processes are ready; " + steps + " steps");
  const View& view = parts_.views.view();
  if (view.generation == 0) return;
  const std::string version = std::to_string(view.restore.version.value());
  parts_.outbox.Tell(
      now, "resumed", "",
      view.restore == SnapshotRef{}
          ? "the run has no snapshot and restarts at step 0"
          : "the run continues from the snapshot of version " + version + " of " + steps,
      /*is_notable=*/true);
}

void Generations::Tick(Micros now) {
  if (!parts_.membership.HasHeardAll()) return;
  if (!parts_.rollback.IsPossible(now, plan_.job.servers)) return;
  const std::string reason = parts_.rollback.Take();
  parts_.phase.TrainAgain();
  Start(now);
  const View& view = parts_.views.view();
  parts_.outbox.Tell(now, "rollback", "",
                     "generation " + std::to_string(view.generation) + " begins from version " +
                         std::to_string(view.restore.version.value()) + " (" + reason + ")",
                     true);
}

void Generations::Start(Micros now) {
  View next = FirstView(now);
  const SnapshotRef restore = next.restore;
  parts_.progress.StartGeneration(restore.version);
  parts_.verification.StartGeneration(StepReading(restore.version));
  parts_.snapshots.StartGeneration(next.generation, restore);
  parts_.view_maker.StartGeneration();
  parts_.silences.StartGeneration();
  parts_.views.DropRequest();
  parts_.evaluations.StartGeneration();
  parts_.requests.StartGeneration(now);
  parts_.final_weights.StartGeneration();
  parts_.faults.OnRollback();
  // Members that are avoided now get work again later.
  parts_.views.RequestView(now + ViewMaker::kMoveInterval);
  parts_.view_maker.Publish(now, std::move(next));
}

// The first view of all, or the first after a rollback.
View Generations::FirstView(Micros now) {
  View next{.id = parts_.views.NextId()};
  const bool is_first = parts_.views.view().shards.empty();
  if (!is_first) {
    next.generation = parts_.views.NextGeneration();
    next.restore = parts_.snapshots.ledger().RestorePoint(parts_.verification.RestoreBound());
  }
  for (const auto& [node, member] : parts_.membership.members().all()) {
    if (member.takes_part()) next.nodes.push_back(member.Info());
  }
  next.shards = PlaceShards(plan_.shards, RestoringServers(now, next.restore), plan_.job.replicas);
  next.owners = parts_.owners.FirstOwners(now);
  return next;
}

// ---- snapshots that cannot be read -------------------------------------------------------------

void Generations::OnRestoreFailed(Micros now, const PeerId& from, const RestoreFailed& failed) {
  const SnapshotRef restore = parts_.views.view().restore;
  if (!parts_.phase.is_running() || failed.snapshot != restore || restore == SnapshotRef{}) return;
  const Member& server = *parts_.membership.members().Find(from.incarnation);
  if (unreadable_.snapshot != restore) unreadable_ = {.snapshot = restore};
  if (!unreadable_.servers.insert(server.peer.node).second) return;  // repeated
  const std::string text = server.Name() + " on " + server.registration.host +
                           " cannot restore version " + std::to_string(restore.version.value()) +
                           ": " + failed.text;
  const bool has_other = !HaveAllFailed();
  if (!has_other) ++unreadable_.rounds;
  const bool is_lost = failed.is_corrupt || unreadable_.rounds >= kRestoreRoundsMax;
  if (is_lost) {
    parts_.outbox.Tell(now, "snapshot-unreadable", server.Name(),
                       text + "; it will not be used again, and its files are left as they are",
                       /*is_notable=*/true);
    parts_.snapshots.Forget(now, restore);
  } else {
    parts_.outbox.Tell(now, "restore-failed", server.Name(), text, /*is_notable=*/true);
  }
  parts_.rollback.Plan(now, text);
  if (!is_lost && !has_other) parts_.rollback.DelayUntil(now + kRestoreRetry);
}

void Generations::OnCommitted(Version committed) {
  if (committed > parts_.views.view().restore.version) unreadable_ = {};
}

bool Generations::HaveAllFailed() const {
  const std::vector<PlacementServer> servers = parts_.membership.members().Servers({});
  return std::ranges::all_of(servers, [&](const PlacementServer& server) {
    return server.is_leaving || unreadable_.servers.contains(server.peer.node);
  });
}

// The servers that get the shards when a generation begins from `restore`: those that have not
// failed to read it, or all of them once more if all have failed.
std::vector<PlacementServer> Generations::RestoringServers(Micros now, const SnapshotRef& restore) {
  std::vector<PlacementServer> servers =
      parts_.membership.members().Servers(parts_.silences.Avoided(now));
  if (unreadable_.snapshot != restore) return servers;
  if (HaveAllFailed()) unreadable_.servers.clear();
  std::erase_if(servers, [&](const PlacementServer& server) {
    return unreadable_.servers.contains(server.peer.node);
  });
  return servers;
}

}  // namespace pando
