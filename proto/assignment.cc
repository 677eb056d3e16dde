#include "proto/assignment.h"

#include <map>

namespace pando {
namespace {

// Returns whether the gradients of both nodes' workers are summed together.
bool AreTogether(const NodeInfo& a, const NodeInfo& b) {
  return a.rack == b.rack && (!a.rack.empty() || a.host == b.host);
}

// Returns the workers that own micro-batches and are in the same place, by rank.
std::vector<const NodeInfo*> OwnersNear(const NodeInfo& us, const View& view) {
  std::set<NodeId> owning;
  for (const MicroBatchOwner& owner : view.owners) owning.insert(owner.worker);
  std::vector<const NodeInfo*> owners;
  if (!owning.contains(us.node)) return owners;
  for (const NodeInfo& node : view.nodes) {
    if (node.role == Role::kWorker && AreTogether(node, us) && owning.contains(node.node))
      owners.push_back(&node);
  }
  std::ranges::sort(owners, {}, &NodeInfo::rank);
  return owners;
}

}  // namespace

std::set<PeerId> SumGroup::AllRelays() const {
  std::set<PeerId> all(relays.begin(), relays.end());
  std::erase_if(all, [](const PeerId& relay) { return relay.node == kUnknownNode; });
  return all;
}

SumGroup SumGroupFor(const View& view, const PeerId& self, const JobPlan& plan) {
  const NodeInfo* us = FindNode(view, self.node);
  if (us == nullptr || !plan.may_sum_near()) return {};
  const bool is_rack = !us->rack.empty();
  if (!is_rack && plan.job.host_sum == SumUse::kOff) return {};
  const std::vector<const NodeInfo*> owners = OwnersNear(*us, view);
  if (owners.size() < 2) return {};
  const bool sums_all = !is_rack && plan.job.host_sum == SumUse::kAlways;
  const auto is_near = [&](const NodeInfo& server) {
    return is_rack ? server.rack == us->rack : server.host == us->host;
  };
  SumGroup group;
  std::map<PeerId, PeerId> relays;  // by lane
  size_t turn = 0;                  // of the rack's workers
  for (const ShardPlacement& shard : view.shards) {
    const auto [relay, is_new] = relays.try_emplace(shard.primary);
    const NodeInfo* server = is_new ? FindNode(view, shard.primary.node) : nullptr;
    if (server != nullptr && (sums_all || !is_near(*server))) {
      const NodeInfo& next = *owners[is_rack ? turn++ % owners.size() : 0];
      relay->second = {next.node, next.incarnation, 0};
    }
    group.relays.push_back(relay->second);
  }
  for (const NodeInfo* owner : owners) group.workers.push_back(owner->node);
  return group;
}

std::vector<TreeNode> NodesFor(const std::vector<NodeId>& workers, const View& view, Step step,
                               const MicroBatchTree& tree) {
  std::vector<MicroBatch> owned;
  for (uint32_t m = 0; m < view.owners.size(); ++m) {
    const NodeId owner = ComputesAt(view.owners[m], step);
    const bool is_ours = std::ranges::find(workers, owner) != workers.end();
    if (is_ours && tree.IsPresent(MicroBatch(m))) owned.emplace_back(m);
  }
  return tree.Cover(owned);
}

}  // namespace pando
