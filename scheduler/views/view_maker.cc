#include "scheduler/views/view_maker.h"

#include <algorithm>
#include <utility>

#include "scheduler/placement/placement.h"

namespace pando {
namespace {

// The least time between two views that move shards. A report of a newcomer in sync can shorten it.
constexpr Micros kMoveInterval = std::chrono::milliseconds(200);
// The requests for a view that come within this time share one view.
constexpr Micros kGatherTime = std::chrono::milliseconds(5);
// The least time between two views grows with the members that they have to reach.
constexpr int64_t kUnspacedMembers = 32;
constexpr Micros kSpacingPerMember = std::chrono::microseconds(250);
constexpr Micros kSpacingMax = std::chrono::milliseconds(250);
// Bounds the images that are in transfer to one server at a time. An image has the kept versions, a
// pin and the state: without staleness up to five times the shard's parameters, and with it up to
// eight times.
constexpr size_t kTransferBytesMax = 16 << 20;
size_t TransferFloatsMax(const JobPlan& plan) {
  return kTransferBytesMax / ((5 + 3 * plan.steps.staleness()) * sizeof(float));
}

}  // namespace

void ViewMaker::RequestSoon(Micros now) { views_.RequestView(now + kGatherTime); }

// ---- the first view of a generation ------------------------------------------------------------

bool ViewMaker::IsComplete() const {
  const Members& members = membership_.members();
  return members.CountReady(Role::kServer) >= plan_.job.servers &&
         members.CountReady(Role::kWorker) >= plan_.job.workers;
}

bool ViewMaker::MayRollBack(Micros now) const {
  const size_t servers = membership_.members().CountReady(Role::kServer);
  return membership_.HasHeardAll() && now >= claims_.open_until() &&
         phase_.MayRollBack(now, servers, plan_.job.servers);
}

View ViewMaker::MakeFirst(Micros now) {
  View next{.id = views_.NextId()};
  const bool is_first = views_.view().shards.empty();
  if (!is_first) {
    next.generation = views_.NextGeneration();
    next.restore = snapshots_.ledger().RestorePoint(verification_.RestoreBound());
  }
  next.nodes = membership_.members().NodeInfos(plan_.job.rack_sum, views_.view());
  auto servers = snapshots_.RestoringServers(next.restore, Avoided(now));
  const std::set<NodeId> distrusted = votes_.Distrusted();
  const auto is_distrusted = [&](const PlacementServer& server) {
    return distrusted.contains(server.peer.node);
  };
  if (!std::ranges::all_of(servers, is_distrusted)) std::erase_if(servers, is_distrusted);
  next.shards = PlaceShards(plan_.shards, servers, plan_.job.replicas);
  next.owners = owners_.FirstOwners(now);
  synced_.clear();
  views_.DropRequest();
  // The next view gives work to members that are avoided now.
  views_.RequestView(now + kMoveInterval);
  return next;
}

// ---- the views after it ------------------------------------------------------------------------

Micros ViewMaker::NextDeadline() const {
  const bool may_make =
      phase_.is_running() && !phase_.is_rolling_back() && membership_.HasHeardAll();
  const auto members = static_cast<int64_t>(membership_.members().all().size());
  const Micros spacing =
      std::clamp((members - kUnspacedMembers) * kSpacingPerMember, Micros(0), kSpacingMax);
  return may_make ? std::max({views_.due_at(), claims_.open_until(), made_at_ + spacing}) : kNever;
}

std::optional<View> ViewMaker::MakeDue(Micros now) {
  if (now < NextDeadline()) return std::nullopt;
  const Members& members = membership_.members();
  views_.DropRequest();
  View next = views_.view();
  next.id = views_.NextId();
  next.nodes = members.NodeInfos(plan_.job.rack_sum, views_.view());
  silences_.RequestViews(now);
  AddSynced(next);
  silences_.ApplyTo(next);
  const std::vector<PlacementServer> servers = members.Servers(Avoided(now));
  if (!DropLostReplicas(plan_.shards, servers, next.id, next.shards)) {
    phase_.PlanRollback(now, "no server in sync is left of some shard");
    return std::nullopt;
  }
  const MoveOptions moves{plan_.job.replicas, next.id, TransferFloatsMax(plan_)};
  if (MoveShards(plan_.shards, servers, moves, next.shards))
    views_.RequestView(now + kMoveInterval);
  next.owners = owners_.NextOwners(now);
  made_at_ = now;
  return next;
}

// Makes in-sync backups of the newcomers that were reported in sync since the last view.
void ViewMaker::AddSynced(View& next) {
  for (const auto& [shard, newcomer] : synced_) {
    ShardPlacement& placement = next.shards[shard];
    if (std::erase(placement.syncing_backups, newcomer) != 0)
      placement.in_sync_backups.push_back(newcomer.peer);
  }
  synced_.clear();
}

void ViewMaker::OnSynced(Micros now, const PeerId& from, const Synced& synced) {
  const View& view = views_.view();
  for (const SyncedItem& item : synced.items) {
    if (item.shard.value() >= view.shards.size()) continue;
    const ShardPlacement& placement = view.shards[item.shard.value()];
    const SyncingBackup pair{item.newcomer, item.pair};
    const bool is_known =
        std::ranges::find(placement.syncing_backups, pair) != placement.syncing_backups.end();
    if (placement.primary != from || !is_known) continue;  // P24
    if (synced_.insert({item.shard.value(), pair}).second) RequestSoon(now);
  }
}

}  // namespace pando
