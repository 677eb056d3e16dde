// These functions read from a view which worker computes which micro-batches, and which workers sum
// for others (P6a, P17, P18, P41). Sessions use them, and worker processes, which dial the relays.
#pragma once

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "plan/job_plan.h"
#include "proto/messages.h"

namespace pando {

// Returns null if the view does not have the node.
inline const NodeInfo* FindNode(const View& view, NodeId node) {
  const auto at = std::ranges::find(view.nodes, node, &NodeInfo::node);
  return at == view.nodes.end() ? nullptr : &*at;
}

// P18. Returns the worker that computes the owner's micro-batch of this step.
inline NodeId ComputesAt(const MicroBatchOwner& owner, Step step) {
  return step >= owner.first_step || owner.previous == kUnknownNode ? owner.worker : owner.previous;
}

// Returns the present micro-batches of this step that the view gives to this worker, ascending.
inline std::vector<MicroBatch> AssignedTo(const View& view, NodeId worker, Step step,
                                          const MicroBatchTree& tree) {
  std::vector<MicroBatch> assigned;
  for (uint32_t m = 0; m < view.owners.size(); ++m) {
    const bool mine = ComputesAt(view.owners[m], step) == worker;
    if (mine && tree.IsPresent(MicroBatch(m))) assigned.emplace_back(m);
  }
  return assigned;
}

// P41. Returns the worker that computes this micro-batch of this step again: the next one after the
// owner by rank, cyclically, among the workers of its kind (P40) that own a micro-batch of the
// step. Returns kUnknownNode if the owner is the only one. REQUIRES: m is in view.owners.
inline NodeId FindVerifier(const View& view, Step step, MicroBatch m) {
  const NodeId owner = ComputesAt(view.owners[m.value()], step);
  const NodeInfo* info = FindNode(view, owner);
  if (info == nullptr) return kUnknownNode;
  std::vector<std::pair<uint32_t, NodeId>> owners;  // the owners of its kind, by rank
  for (const NodeInfo& node : view.nodes) {
    const bool is_owner = std::ranges::any_of(view.owners, [&](const MicroBatchOwner& other) {
      return ComputesAt(other, step) == node.node;
    });
    if (is_owner && node.probe_hash == info->probe_hash) owners.emplace_back(node.rank, node.node);
  }
  std::ranges::sort(owners);
  const auto at = std::ranges::find(owners, owner, &std::pair<uint32_t, NodeId>::second);
  if (at == owners.end() || owners.size() < 2) return kUnknownNode;
  return at + 1 == owners.end() ? owners.front().second : (at + 1)->second;
}

// SumGroup is the workers of one host or of one rack that sum their gradients before these leave
// it (P6a).
struct SumGroup {
  std::vector<NodeId> workers;  // the owners of micro-batches, by rank; at least two, or none
  std::vector<PeerId> relays;   // by shard: gets the others' sums; kUnknownNode: none does

  // False for a shard that the view does not have, and for all if the group is empty.
  bool IsRelay(ShardId shard, const PeerId& peer) const {
    return shard.value() < relays.size() && relays[shard.value()] == peer;
  }
  std::set<PeerId> AllRelays() const;
};

// Returns the group of this worker: that of its rack if the view names one, else that of its host.
// A host's relay is its worker of the lowest rank. The relays of a rack take turns, lane by lane.
// No worker relays a shard whose primary is in the same place. The group is empty if the worker
// owns nothing or is the only owner.
SumGroup SumGroupFor(const View& view, const PeerId& self, const JobPlan& plan);

// Returns the tree nodes that cover all micro-batches of these workers in this step.
std::vector<TreeNode> NodesFor(const std::vector<NodeId>& workers, const View& view, Step step,
                               const MicroBatchTree& tree);

}  // namespace pando
