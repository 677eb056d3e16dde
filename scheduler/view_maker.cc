#include "scheduler/view_maker.h"

#include <algorithm>
#include <utility>

#include "common/mutation.h"
#include "scheduler/placement/placement.h"

namespace pando {
namespace {

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

}  // namespace

// ---- making views ------------------------------------------------------------------------------

void ViewMaker::Tick(Micros now) {
  if (now >= NextDeadline()) Make(now);
}

Micros ViewMaker::NextDeadline() const {
  const bool may_make =
      run_.phase.is_running() && !run_.rollback.is_pending() && run_.membership.HasHeardAll();
  return may_make ? run_.views.due_at() : kNever;
}

void ViewMaker::RequestViewForGroup(Micros now) { run_.views.RequestView(now + kGatherTime); }

void ViewMaker::Make(Micros now) {
  const View& view = run_.view();
  const Members& members = run_.members();
  run_.views.DropRequest();
  View next = view;
  next.id = run_.views.NextId();
  next.nodes = members.NodeInfos();
  silences_.RequestViews(now);
  AddSynced(next);
  silences_.ApplyTo(next);
  const std::vector<PlacementServer> servers = members.Servers(silences_.Avoided(now));
  if (!DropLostReplicas(run_.plan.shards, servers, next.id, next.shards))
    return run_.rollback.Plan(now, "no server in sync is left of some shard");
  const MoveOptions moves{run_.plan.job.replicas, next.id, kTransferFloatsMax};
  if (MoveShards(run_.plan.shards, servers, moves, next.shards))
    run_.views.RequestView(now + kMoveInterval);
  next.owners = owners_.NextOwners(now);
  const bool is_same = AreSame(next.nodes, view.nodes) && AreSame(next.shards, view.shards) &&
                       AreSame(next.owners, view.owners);
  if (!is_same || !run_.views.HasAnnounced()) return Publish(now, std::move(next));
  run_.faults.OnView(view.id);  // the lost members had no work
}

// Newcomers that their primaries have reported in sync since the last view.
void ViewMaker::AddSynced(View& next) {
  for (const auto& [shard, newcomer] : synced_) {
    ShardPlacement& placement = next.shards[shard];
    const auto is_it = [&](const SyncingBackup& s) {
      return s.peer == newcomer.peer &&
             (s.since == newcomer.since || Mutated(Mutation::kStaleReport));
    };
    if (std::erase_if(placement.syncing_backups, is_it) != 0)
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
    const auto is_it = [&](const SyncingBackup& s) {
      return s == pair || (Mutated(Mutation::kStaleReport) && s.peer == pair.peer);
    };
    const bool is_source = placement.primary == from || Mutated(Mutation::kStaleReport);
    if (!is_source || std::ranges::none_of(placement.syncing_backups, is_it)) continue;  // P24
    if (synced_.insert({item.shard.value(), pair}).second) RequestViewForGroup(now);
  }
}

// ---- publishing views --------------------------------------------------------------------------

void ViewMaker::Publish(Micros now, View next) {
  const bool had_worker = run_.view().owners.empty() || WaitingText().empty();
  run_.views.Publish(std::move(next));
  run_.outbox.MarkChanged();
  final_weights_.OnView(now);
  run_.progress.OnView();
  evaluations_.OnView();
  owners_.OnView(now);
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
  if (acked_.Newest(lane) < view.id) run_.outbox.Send(lane, ViewUpdate{view});
}

void ViewMaker::OnViewAck(Micros now, const Envelope& envelope, const ViewAck& ack) {
  const PeerId& from = envelope.sender;
  const Member& member = run_.Sender(from);
  if (run_.phase.is_running() && !run_.views.IsOurs(ack.id, ack.generation))
    return run_.rollback.OnNewsBeyond(now, member, ack.id, ack.generation);
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
