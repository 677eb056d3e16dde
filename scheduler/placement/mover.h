// The moves of placement: which servers should hold each shard, and which moves are possible now.
// Used by scheduler/placement/placement.cc alone.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "scheduler/placement/placement.h"

namespace pando {

std::vector<uint32_t> LargestFirst(const ShardPlan& plan);

// Makes an in-sync backup the primary. What is syncing starts over from the new source (P24).
void Promote(ShardPlacement& placement, PeerId backup, ViewId next);

// Mover finds out which servers should hold each shard, changing as little as it can, and makes
// those moves towards it that can be made now.
class Mover {
 public:
  Mover(const ShardPlan& plan, const std::vector<PlacementServer>& servers,
        const MoveOptions& options, std::vector<ShardPlacement>& placements);
  bool Move();

 private:
  static constexpr size_t kNobody = SIZE_MAX;
  using Holders = std::vector<size_t>;  // indices of servers
  size_t ShardFloats(size_t shard) const { return plan_.ranges()[shard].size(); }
  size_t ServerIndex(const PeerId& peer) const;
  bool Stays(size_t server) const { return !servers_[server].is_leaving; }

  // Which servers should hold each shard.
  void TakeStock();
  void TrimShard(size_t shard);
  void SpreadShard(size_t shard);
  bool IsNewcomer(size_t shard, size_t server) const;
  void FillShard(size_t shard);
  size_t CountHosts(const Holders& holders, size_t instead_of = kNobody) const;
  bool SharesHost(size_t server, const Holders& holders, size_t instead_of = kNobody) const;
  bool MayHold(size_t server, const Holders& holders, size_t instead_of) const;
  size_t EmptiestFor(const Holders& holders, size_t instead_of) const;
  bool EvenOut();
  std::optional<size_t> ShardToShift(size_t from, size_t to) const;
  // The moves that are possible now.
  bool AddReplicas();
  bool RemoveReplicas();
  bool Settle(size_t shard);
  bool EvenOutPrimaries();
  bool ShiftPrimary(size_t from, size_t to);
  bool ShiftTwoPrimaries();
  bool ShiftAfter(size_t first, size_t via);
  void GiveLead(size_t shard, size_t server);
  PeerId LaneFor(size_t server) const;

  const ShardPlan& plan_;
  const std::vector<PlacementServer>& servers_;
  const MoveOptions& options_;
  std::vector<ShardPlacement>& placements_;
  const size_t largest_;
  std::map<NodeId, size_t> index_;
  size_t host_count_ = 0;          // of servers that stay
  std::vector<Holders> wanted_;    // by shard
  std::vector<size_t> floats_;     // by server: of the shards that it should hold
  std::vector<size_t> primaries_;  // by server: floats of the shards that it is primary of
  std::map<PeerId, size_t> lane_floats_;
};

}  // namespace pando
