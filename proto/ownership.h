// Whether a message concerns only shards that a view gives to its sender (P46). The column About of
// the table of messages says which messages. Used by lanes, workers and the scheduler.
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "proto/messages.h"

namespace pando {

bool IsPrimary(const View& view, ShardId shard, const PeerId& peer);
// As the primary, as a backup, or as a backup that is syncing.
bool HasReplica(const View& view, ShardId shard, const PeerId& peer);
// Whether each shard that the message names is one of these; true if it names none.
bool AreAllShards(const Message& message, const std::function<bool(ShardId)>& is_one);

// The lanes to which views of a generation gave a replica of each shard. The journal keeps them.
struct ShardHolders {
  uint32_t generation = 0;
  std::vector<std::set<PeerId>> lanes;  // by shard

  // A view of another generation replaces all.
  void Add(const View& view);
  void Forget(Incarnation process);
  bool Has(ShardId shard, const PeerId& lane) const {
    return shard.value() < lanes.size() && lanes[shard.value()].contains(lane);
  }
};

// The view alone decides this for kPrimary and kReplica. True for all other messages.
bool IsAboutOwnShards(const View& view, const Envelope& envelope);

}  // namespace pando
