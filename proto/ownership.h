// These functions check that a message is only about shards that a view gives to its sender (P46).
// The message table's column About says which messages. Lanes, workers and the scheduler use them.
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "proto/messages.h"

namespace pando {

bool IsPrimary(const View& view, ShardId shard, const PeerId& peer);
// Returns whether the peer is the primary, a backup, or a syncing backup.
bool HasReplica(const View& view, ShardId shard, const PeerId& peer);
// Returns whether `is_one` holds for each shard that the message names; true if it names none.
bool AreAllShards(const Message& message, const std::function<bool(ShardId)>& is_one);

// ShardHolders keeps, by shard, the lanes to which views of a generation gave a replica. It is in
// the journal.
struct ShardHolders {
  uint32_t generation = 0;
  std::vector<std::set<PeerId>> lanes;  // by shard

  // Adds the view's lanes. A view of another generation replaces all entries.
  void Add(const View& view);
  void Forget(Incarnation process);
  bool Has(ShardId shard, const PeerId& lane) const {
    return shard.value() < lanes.size() && lanes[shard.value()].contains(lane);
  }
};

// Returns whether the sender may send this message by the view alone (kPrimary, kReplica). Returns
// true for all other messages.
bool IsAboutOwnShards(const View& view, const Envelope& envelope);

}  // namespace pando
