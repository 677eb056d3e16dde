#include "proto/ownership.h"

#include <algorithm>

namespace pando {
namespace {

const ShardPlacement* FindPlacement(const View& view, ShardId shard) {
  return shard.value() < view.shards.size() ? &view.shards[shard.value()] : nullptr;
}

}  // namespace

bool IsPrimary(const View& view, ShardId shard, const PeerId& peer) {
  const ShardPlacement* placement = FindPlacement(view, shard);
  return placement != nullptr && placement->primary == peer;
}

bool HasReplica(const View& view, ShardId shard, const PeerId& peer) {
  const ShardPlacement* placement = FindPlacement(view, shard);
  if (placement == nullptr) return false;
  return placement->primary == peer || std::ranges::count(placement->in_sync_backups, peer) != 0 ||
         std::ranges::count(placement->syncing_backups, peer, &SyncingBackup::peer) != 0;
}

bool AreAllShards(const Message& message, const std::function<bool(ShardId)>& is_one) {
  return std::visit(
      [&](const auto& m) {
        if constexpr (requires { m.shard; }) return is_one(m.shard);
        if constexpr (requires { m.items.front().shard; })
          return std::ranges::all_of(m.items, [&](const auto& item) { return is_one(item.shard); });
        return true;
      },
      message);
}

void ShardHolders::Add(const View& view) {
  if (generation != view.generation) lanes.clear();
  generation = view.generation;
  lanes.resize(view.shards.size());
  for (size_t s = 0; s < view.shards.size(); ++s) {
    const ShardPlacement& placement = view.shards[s];
    if (placement.primary.node != kUnknownNode) lanes[s].insert(placement.primary);
    lanes[s].insert(placement.in_sync_backups.begin(), placement.in_sync_backups.end());
    for (const SyncingBackup& syncing : placement.syncing_backups) lanes[s].insert(syncing.peer);
  }
}

void ShardHolders::Forget(Incarnation process) {
  for (std::set<PeerId>& of_shard : lanes)
    std::erase_if(of_shard, [&](const PeerId& lane) { return lane.incarnation == process; });
}

bool IsAboutOwnShards(const View& view, const Envelope& envelope) {
  const About about = RowFor(envelope.message).about;
  if (about != About::kPrimary && about != About::kReplica) return true;
  return AreAllShards(envelope.message, [&](ShardId shard) {
    return about == About::kPrimary ? IsPrimary(view, shard, envelope.sender)
                                    : HasReplica(view, shard, envelope.sender);
  });
}

}  // namespace pando
