// Replica is a lane's replica of a shard: its data (Shard) and the lane's role (server/replicas.h).
#pragma once

#include <cstdint>
#include <optional>

#include "proto/messages.h"
#include "server/shard.h"

namespace pando {

enum class ReplicaRole : uint8_t { kPrimary, kBackup, kSyncing };

class Replica {
 public:
  Replica(ShardId id, const JobPlan& plan, const VersionMaker& maker, const BufferSource& buffers)
      : shard(id, plan, maker, buffers) {}

  Shard shard;

  ReplicaRole role() const { return role_; }
  bool is_primary() const { return role_ == ReplicaRole::kPrimary; }
  // The peer whose roots and chunks are accepted.
  const PeerId& primary() const { return primary_; }
  // The view that made the pair, if the replica is syncing.
  const std::optional<ViewId>& pair() const { return pair_; }

 private:
  friend class Replicas;
  void Become(ReplicaRole role, const PeerId& primary, std::optional<ViewId> pair) {
    role_ = role;
    primary_ = primary;
    pair_ = pair;
  }

  ReplicaRole role_ = ReplicaRole::kSyncing;
  PeerId primary_;
  std::optional<ViewId> pair_;
};

}  // namespace pando
