#include "scheduler/view_maker.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "common/mutation.h"
#include "scheduler/placement/placement.h"

namespace pando {
namespace {

// The least time between two views that move shards, unless a report arrives.
constexpr Micros kMoveInterval = std::chrono::milliseconds(200);
constexpr Micros kGatherTime = std::chrono::milliseconds(5);
// Images in transfer to one newcomer at a time. An image has two versions and optimizer state, up
// to five times the shard's parameters.
constexpr size_t kTransferBytesMax = 16 << 20;
constexpr size_t kTransferFloatsMax = kTransferBytesMax / (5 * sizeof(float));

bool IsSame(const ShardPlacement& a, const ShardPlacement& b) {
  return a.primary == b.primary && a.in_sync_backups == b.in_sync_backups &&
         a.syncing_backups == b.syncing_backups;
}
bool IsSame(const MicroBatchOwner& a, const MicroBatchOwner& b) {
  return a.worker == b.worker && a.first_step == b.first_step && a.previous == b.previous;
}
bool IsSame(const NodeInfo& a, const NodeInfo& b) {
  return a.node == b.node && a.incarnation == b.incarnation;
}
template <class T>
bool AreSame(const std::vector<T>& a, const std::vector<T>& b) {
  return std::ranges::equal(a, b, [](const T& x, const T& y) { return IsSame(x, y); });
}

// A snapshot that no server can read, though none says that it is damaged, is tried so often.
constexpr uint32_t kRestoreRoundsMax = 3;
constexpr Micros kRestoreRetry = std::chrono::seconds(1);

}  // namespace

// ---- generations --------------------------------------------------------------------------------

void ViewMaker::OnMemberReady(Micros now) {
  if (run_.phase.is_gathering()) StartWhenComplete(now);
  if (run_.phase.is_running()) RequestViewForGroup(now);
}

void ViewMaker::StartWhenComplete(Micros now) {
  const Members& members = run_.members();
  if (members.CountReady(Role::kServer) < run_.plan.job.servers) return;
  if (members.CountReady(Role::kWorker) < run_.plan.job.workers) return;
  run_.phase.StartTraining(now);
  StartGeneration(now);
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

void ViewMaker::RollBack(Micros now) {
  const std::string reason = run_.rollback.Take();
  run_.phase.TrainAgain();
  StartGeneration(now);
  const View& view = run_.view();
  run_.outbox.TellNotable(now, "rollback", "", "generation {} begins from version {} ({})",
                          view.generation, view.restore.version.value(), reason);
}

void ViewMaker::StartGeneration(Micros now) {
  View next = FirstView(now);
  const SnapshotRef restore = next.restore;
  run_.progress.StartGeneration(restore.version);
  parts_.verification.StartGeneration(StepReading(restore.version));
  parts_.snapshots.ledger().StartGeneration(next.generation, restore);
  synced_.clear();
  parts_.silences.StartGeneration();
  run_.views.DropRequest();
  parts_.evaluations.StartGeneration();
  parts_.requests.StartGeneration(now);
  parts_.final_weights.StartGeneration();
  run_.faults.OnRollback();
  // Members that are avoided now get work again later.
  run_.views.RequestView(now + kMoveInterval);
  Publish(now, std::move(next));
}

// The first view of all, or the first after a rollback.
View ViewMaker::FirstView(Micros now) {
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

void ViewMaker::OnRestoreFailed(Micros now, const PeerId& from, const RestoreFailed& failed) {
  const SnapshotRef restore = run_.view().restore;
  if (!run_.phase.is_running() || failed.snapshot != restore || restore == SnapshotRef{}) return;
  // P46: all shards were restored before the generation's first commit.
  if (run_.progress.committed() > restore.version && !Mutated(Mutation::kLateRestore)) return;
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

void ViewMaker::OnCommitted(Version committed) {
  if (committed > run_.view().restore.version) unreadable_ = {};
}

bool ViewMaker::HaveAllFailed() const {
  const std::vector<PlacementServer> servers = run_.members().Servers({});
  return std::ranges::all_of(servers, [&](const PlacementServer& server) {
    return server.is_leaving || unreadable_.servers.contains(server.peer.node);
  });
}

// The servers that get the shards when a generation begins from `restore`: those that have not
// failed to read it, or all of them once more if all have failed.
std::vector<PlacementServer> ViewMaker::RestoringServers(Micros now, const SnapshotRef& restore) {
  std::vector<PlacementServer> servers = run_.members().Servers(parts_.silences.Avoided(now));
  if (unreadable_.snapshot != restore) return servers;
  if (HaveAllFailed()) unreadable_.servers.clear();
  std::erase_if(servers, [&](const PlacementServer& server) {
    return unreadable_.servers.contains(server.peer.node);
  });
  return servers;
}

// ---- making views ------------------------------------------------------------------------------

void ViewMaker::Tick(Micros now) {
  const bool has_servers = run_.rollback.IsPossible(now, run_.plan.job.servers);
  const bool has_heard_all = run_.membership.HasHeardAll() && now >= run_.claims.open_until();
  if (has_heard_all && has_servers) RollBack(now);
  if (now >= NextDeadline()) Make(now);
}

Micros ViewMaker::NextDeadline() const {
  const bool may_make =
      run_.phase.is_running() && !run_.rollback.is_pending() && run_.membership.HasHeardAll();
  return may_make ? std::max(run_.views.due_at(), run_.claims.open_until()) : kNever;
}

// Joiners and newcomers in sync come in groups: one view for all of them.
void ViewMaker::RequestViewForGroup(Micros now) { run_.views.RequestView(now + kGatherTime); }

void ViewMaker::Make(Micros now) {
  const View& view = run_.view();
  const Members& members = run_.members();
  run_.views.DropRequest();
  View next = view;
  next.id = run_.views.NextId();
  next.nodes = members.NodeInfos();
  parts_.silences.RequestViews(now);
  AddSynced(next);
  parts_.silences.ApplyTo(next);
  const std::vector<PlacementServer> servers = members.Servers(parts_.silences.Avoided(now));
  if (!DropLostReplicas(run_.plan.shards, servers, next.id, next.shards))
    return run_.rollback.Plan(now, "no server in sync is left of some shard");
  const MoveOptions moves{run_.plan.job.replicas, next.id, kTransferFloatsMax};
  if (MoveShards(run_.plan.shards, servers, moves, next.shards))
    run_.views.RequestView(now + kMoveInterval);
  next.owners = parts_.owners.NextOwners(now);
  const bool is_same = AreSame(next.nodes, view.nodes) && AreSame(next.shards, view.shards) &&
                       AreSame(next.owners, view.owners);
  if (!is_same || !run_.views.HasAnnounced()) return Publish(now, std::move(next));
  run_.faults.OnView(view.id);  // the lost members had no work
}

// Newcomers that their primaries have reported in sync since the last view.
void ViewMaker::AddSynced(View& next) {
  for (const auto& [shard, newcomer] : synced_) {
    ShardPlacement& placement = next.shards[shard];
    if (std::erase(placement.syncing_backups, newcomer) != 0)
      placement.in_sync_backups.push_back(newcomer.peer);
  }
  synced_.clear();
}

void ViewMaker::OnSynced(Micros now, const PeerId& from, const Synced& synced) {
  const View& view = run_.view();
  for (const SyncedItem& item : synced.items) {
    if (item.shard.value() >= view.shards.size()) continue;
    const ShardPlacement& placement = view.shards[item.shard.value()];
    const SyncingBackup pair{item.newcomer, item.pair};
    const bool is_known =
        std::ranges::find(placement.syncing_backups, pair) != placement.syncing_backups.end();
    if (placement.primary != from || !is_known) continue;  // P24
    if (synced_.insert({item.shard.value(), pair}).second) RequestViewForGroup(now);
  }
}

// ---- publishing views --------------------------------------------------------------------------

void ViewMaker::Publish(Micros now, View next) {
  const bool had_worker = run_.view().owners.empty() || WaitingText().empty();
  std::string signature;
  if (run_.seal) signature = run_.seal->Sign(SealedText(run_.outbox.job(), next));
  run_.views.Publish(std::move(next), std::move(signature));
  parts_.ownership.OnView();
  run_.outbox.MarkChanged();
  parts_.final_weights.OnView(now);
  run_.progress.OnView();
  parts_.evaluations.OnView();
  parts_.owners.OnView(now);
  const View& view = run_.view();
  run_.faults.OnView(view.id);
  run_.outbox.RepeatAt(now);
  size_t syncing = 0;
  for (const ShardPlacement& placement : view.shards) syncing += placement.syncing_backups.size();
  const Members& members = run_.members();
  run_.outbox.Tell(now, "view", "",
                   "view {}: {} workers, {} servers, {} shards, {} replicas syncing",
                   view.id.number, members.CountReady(Role::kWorker),
                   members.CountReady(Role::kServer), view.shards.size(), syncing);
  const std::string waiting = WaitingText();
  if (had_worker && !waiting.empty())
    run_.outbox.TellNotable(now, "waiting", "", "the job waits: {}", waiting);
}

void ViewMaker::RepeatTo(const PeerId& lane) {
  const View& view = run_.view();
  if (acked_.Newest(lane) < view.id)
    run_.outbox.Send(lane, ViewUpdate{view, run_.views.signature()});
}

void ViewMaker::OnViewAck(Micros now, const Envelope& envelope, const ViewAck& ack) {
  const PeerId& from = envelope.sender;
  if (run_.phase.is_running() && !run_.views.IsOurs(ack.id, ack.generation))
    return run_.claims.OnClaim(now, from, ack.id, ack.generation);
  // A member that answers an earlier life of the scheduler has the view from another member, and
  // does not know this life yet.
  if (envelope.receiver.incarnation != run_.outbox.self().incarnation) return;
  acked_.OnAck(from, ack.id);
  if (HaveAllAcked()) run_.faults.Recover(now, "scheduler");
}

// Whether every lane has a view of this life of the scheduler.
bool ViewMaker::HaveAllAcked() const {
  for (const auto& [node, member] : run_.members().all()) {
    if (!member.takes_part()) continue;
    for (const PeerId& lane : member.Peers()) {
      if (acked_.Newest(lane).term != run_.views.term()) return false;
    }
  }
  return true;
}

std::string ViewMaker::WaitingText() const {
  if (run_.phase.is_gathering()) return "for " + run_.membership.MissingText();
  if (run_.rollback.is_pending()) {
    const bool has_server = run_.members().CountReady(Role::kServer) != 0;
    return has_server ? "restoring the last snapshot" : "no server";
  }
  const bool has_worker = std::ranges::any_of(run_.view().owners, [](const MicroBatchOwner& owner) {
    return owner.worker != kUnknownNode;
  });
  return run_.phase.is_running() && !has_worker ? "no worker" : "";
}

}  // namespace pando
