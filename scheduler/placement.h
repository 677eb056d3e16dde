// Where shards go. Pure functions of the servers and of where the shards are; called by the
// scheduler core.
//
// The only moves are: add a replica (it is syncing until its primary reports it in sync), promote,
// remove. Each call makes the moves that can be made at once; the scheduler publishes them as a
// view and calls again when something has come of them.
//
// What it aims at: `replicas` replicas of each shard, on different servers, and on as many hosts as
// can be; bytes of all replicas per server, and of primaries per server, differing by no more than
// the largest shard's, wherever the hosts leave the choice; nothing moved that need not.
#pragma once

#include <string>
#include <vector>

#include "common/tensor_layout.h"
#include "proto/messages.h"

namespace pando {

// A server as placement sees it.
struct PlacementServer {
  PeerId peer;  // lane 0
  std::string host;
  uint16_t lane_count = 1;
  bool is_leaving = false;  // keeps what it has until others have it, and gets nothing new
  bool takes_more = true;   // false: gets nothing new for now
};

// Everything anew, all replicas in sync: for version 0 and for what is restored from a snapshot.
// A model of few bytes, whose steps are bound by messages, is cut into one run of shards per lane.
// REQUIRES: some server is not leaving.
std::vector<ShardPlacement> PlaceShards(const ShardPlan& plan,
                                        const std::vector<PlacementServer>& servers,
                                        uint32_t replicas);

// Takes out the replicas on servers that are not among `servers`, and promotes in-sync backups
// where that takes the primary; `next` is the view that will say so (P24).  Returns false if a
// shard is left without a replica in sync; `placements` are then of no use.
bool DropLostReplicas(const ShardPlan& plan, const std::vector<PlacementServer>& servers,
                      ViewId next, std::vector<ShardPlacement>& placements);

struct MoveOptions {
  uint32_t replicas = 1;
  ViewId next;                     // the view that will say so
  size_t transfer_floats_max = 0;  // per newcomer at a time, but always one shard
};
// Makes the moves that are next on the way to what placement aims at. True if it made any.
// REQUIRES: every replica is on one of `servers`.
bool MoveShards(const ShardPlan& plan, const std::vector<PlacementServer>& servers,
                const MoveOptions& options, std::vector<ShardPlacement>& placements);

}  // namespace pando
