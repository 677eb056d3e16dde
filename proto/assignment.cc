#include "proto/assignment.h"

#include <string>

namespace pando {
namespace {

bool OwnsAny(const View& view, NodeId worker) {
  return std::ranges::find(view.owners, worker, &MicroBatchOwner::worker) != view.owners.end();
}

// Returns the host's workers that own micro-batches, by rank.
std::vector<const NodeInfo*> OwnersOn(const std::string& host, const View& view) {
  std::vector<const NodeInfo*> owners;
  for (const NodeInfo& node : view.nodes) {
    if (node.role == Role::kWorker && node.host == host && OwnsAny(view, node.node))
      owners.push_back(&node);
  }
  std::ranges::sort(owners, {}, &NodeInfo::rank);
  return owners;
}

}  // namespace

HostGroup HostGroupFor(const View& view, const PeerId& self, const JobPlan& plan) {
  const NodeInfo* us = FindNode(view, self.node);
  if (us == nullptr || !plan.may_sum_on_host() || !OwnsAny(view, self.node)) return {};
  const std::vector<const NodeInfo*> owners = OwnersOn(us->host, view);
  if (owners.size() < 2) return {};
  HostGroup group;
  for (const ShardPlacement& shard : view.shards) {
    const NodeInfo* server = FindNode(view, shard.primary.node);
    const bool leaves = server != nullptr && server->host != us->host;
    group.sums.push_back(leaves || plan.job.host_sum == HostSum::kAlways);
  }
  if (std::ranges::count(group.sums, true) == 0) return {};
  group.relay = {owners.front()->node, owners.front()->incarnation, 0};
  for (const NodeInfo* owner : owners) group.workers.push_back(owner->node);
  return group;
}

std::vector<TreeNode> NodesOfHost(const HostGroup& group, const View& view, Step step,
                                  const MicroBatchTree& tree) {
  std::vector<MicroBatch> owned;
  for (uint32_t m = 0; m < view.owners.size(); ++m) {
    const NodeId owner = ComputesAt(view.owners[m], step);
    const bool is_ours = std::ranges::find(group.workers, owner) != group.workers.end();
    if (is_ours && tree.IsPresent(MicroBatch(m))) owned.emplace_back(m);
  }
  return tree.Cover(owned);
}

}  // namespace pando
