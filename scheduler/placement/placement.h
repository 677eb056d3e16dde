// These functions decide which servers hold the replicas of each shard, from the servers and the
// present places alone. ViewMaker calls them.
//
// The only moves are: add a replica (it is syncing until its primary reports it in sync), promote,
// remove. Each call makes the moves that are possible at once. The scheduler publishes them as a
// view and calls again when they are done.
//
// The aim is `replicas` replicas of each shard, on different servers and in as many domains as
// possible. If these leave a choice, the bytes of all replicas per server, and of primaries
// per server, differ by at most the largest shard's. No shard moves without need.
#pragma once

#include <string>
#include <vector>

#include "plan/shard_plan.h"
#include "proto/messages.h"

namespace pando {

// PlacementServer is a server as placement sees it.
struct PlacementServer {
  PeerId peer;         // lane 0
  std::string domain;  // what fails together: a rack if there are several, else a machine
  uint16_t lane_count = 1;
  bool is_leaving = false;  // keeps its replicas until others have them; gets no new ones
  bool takes_more = true;   // false: gets no new replicas now
};

inline PeerId OnLane(PeerId server, size_t lane) {
  server.lane = static_cast<uint16_t>(lane);
  return server;
}

// Places all shards, with all replicas in sync, for version 0 and for a restored snapshot. The
// number of messages limits the pace of a small model, so it is cut into one run of shards per
// lane. REQUIRES: some server is not leaving.
std::vector<ShardPlacement> PlaceShards(const ShardPlan& plan,
                                        const std::vector<PlacementServer>& servers,
                                        uint32_t replicas);

// Removes the replicas on servers that are not in `servers`, and promotes an in-sync backup if the
// primary is lost. `next`: the view that will publish the placements (P24).  Returns false if a
// shard is left without a replica in sync; `placements` are then undefined.
bool DropLostReplicas(const ShardPlan& plan, const std::vector<PlacementServer>& servers,
                      ViewId next, std::vector<ShardPlacement>& placements);

struct MoveOptions {
  uint32_t replicas = 1;
  ViewId next;                     // the view that will publish the moves
  size_t transfer_floats_max = 0;  // in transfer to a server at a time; at least one shard
};
// Makes the next moves towards the aim.  Returns true if it made any.
// REQUIRES: every replica is on one of `servers`.
bool MoveShards(const ShardPlan& plan, const std::vector<PlacementServer>& servers,
                const MoveOptions& options, std::vector<ShardPlacement>& placements);

// Makes an in-sync backup the primary; newcomers start over from the new source (P24). The
// functions above share it.
void Promote(ShardPlacement& placement, PeerId backup, ViewId next);

}  // namespace pando
