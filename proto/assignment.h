// Says, by the view, which worker computes what, and which workers sum on their host (P6a, P17,
// P18, P41). A worker's session uses it, and so does its process, which dials the host's relay.
#pragma once

#include <algorithm>
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

// P18: returns the worker that computes micro-batch `owner` of this step.
inline NodeId ComputesAt(const MicroBatchOwner& owner, Step step) {
  return step >= owner.first_step || owner.previous == kUnknownNode ? owner.worker : owner.previous;
}

// Returns the present micro-batches of this step that the view gives to this worker, ascending;
// absent ones are left out.
inline std::vector<MicroBatch> AssignedTo(const View& view, NodeId worker, Step step,
                                          const MicroBatchTree& tree) {
  std::vector<MicroBatch> assigned;
  for (uint32_t m = 0; m < view.owners.size(); ++m) {
    const bool mine = ComputesAt(view.owners[m], step) == worker;
    if (mine && tree.IsPresent(MicroBatch(m))) assigned.emplace_back(m);
  }
  return assigned;
}

// P41: returns the worker that computes this micro-batch of this step again. It is the next one
// after the owner by rank, cyclically, among the workers of its kind (P40) that own a micro-batch
// of the step. Returns kUnknownNode if there is no second one.
// REQUIRES: m is in view.owners.
inline NodeId FindVerifier(const View& view, Step step, MicroBatch m) {
  const NodeId owner = ComputesAt(view.owners[m.value()], step);
  const NodeInfo* info = FindNode(view, owner);
  if (info == nullptr) return kUnknownNode;
  std::vector<std::pair<uint32_t, NodeId>> owners;  // those of its kind, by rank
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

// The workers of one host that sum their gradients there before anything leaves the host (P6a).
struct HostGroup {
  PeerId relay;                 // receives the other workers' sums; kUnknownNode: no relay
  std::vector<NodeId> workers;  // the owners of micro-batches, the relay first; at least two
  std::vector<bool> sums;       // by shard: whether the host sums it

  bool has_relay() const { return relay.node != kUnknownNode; }
};

// Returns the group of this worker. Its relay is the host's worker of the lowest rank. There is no
// relay if the worker owns nothing, is the only owner, or every shard's primary is on this host.
HostGroup HostGroupFor(const View& view, const PeerId& self, const JobPlan& plan);

// Returns the tree nodes of a step that the host gives if all of its workers give theirs.
std::vector<TreeNode> NodesOfHost(const HostGroup& group, const View& view, Step step,
                                  const MicroBatchTree& tree);

}  // namespace pando
