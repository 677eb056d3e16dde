#include "proto/view_delta.h"

#include <algorithm>
#include <map>
#include <utility>

namespace pando {
namespace {

// Calls visit(index) for the items of `to` that `from` does not have at the same place.
template <class T, class Visit>
void VisitChanged(const std::vector<T>& from, const std::vector<T>& to, Visit visit) {
  for (uint32_t i = 0; i < to.size(); ++i) {
    if (from[i] != to[i]) visit(i);
  }
}

void AddNodes(const View& from, const View& to, ViewChange* change) {
  std::map<NodeId, const NodeInfo*> old;
  for (const NodeInfo& node : from.nodes) old.emplace(node.node, &node);
  for (const NodeInfo& node : to.nodes) {
    const auto before = old.find(node.node);
    if (before == old.end() || *before->second != node) change->changed.push_back(node);
    if (before != old.end()) old.erase(before);
  }
  for (const auto& [node, info] : old) change->removed.push_back(node);
}

void AddOwner(uint32_t index, const MicroBatchOwner& owner, std::vector<OwnerRun>* runs) {
  const bool continues = !runs->empty() && runs->back().owner == owner &&
                         runs->back().first.value() + runs->back().count == index;
  if (continues) {
    ++runs->back().count;
  } else {
    runs->push_back({MicroBatch(index), 1, owner});
  }
}

std::vector<NodeInfo> NodesAfter(const View& base, const ViewChange& change) {
  std::map<NodeId, NodeInfo> nodes;
  for (const NodeInfo& node : base.nodes) nodes.emplace(node.node, node);
  for (const NodeId node : change.removed) nodes.erase(node);
  for (const NodeInfo& node : change.changed) nodes.insert_or_assign(node.node, node);
  std::vector<NodeInfo> after;
  for (auto& [id, node] : nodes) after.push_back(std::move(node));
  return after;
}

}  // namespace

std::optional<ViewChange> Difference(const SharedView& from, const SharedView& to) {
  const bool has_same_size =
      from->shards.size() == to->shards.size() && from->owners.size() == to->owners.size();
  if (!has_same_size) return std::nullopt;
  ViewChange change{.base = from->id,
                    .base_hash = from.hash(),
                    .id = to->id,
                    .generation = to->generation,
                    .restore = to->restore,
                    .hash = to.hash()};
  AddNodes(*from, *to, &change);
  VisitChanged(from->shards, to->shards, [&](uint32_t i) {
    change.shards.push_back({ShardId(i), to->shards[i]});
  });
  VisitChanged(from->owners, to->owners,
               [&](uint32_t i) { AddOwner(i, to->owners[i], &change.owners); });
  return change;
}

std::optional<SharedView> Apply(const SharedView& base, const ViewChange& change) {
  if (change.base != base->id || change.base_hash != base.hash()) return std::nullopt;
  View view{.id = change.id,
            .generation = change.generation,
            .restore = change.restore,
            .nodes = NodesAfter(*base, change),
            .shards = base->shards,
            .owners = base->owners};
  for (const PlacedShard& shard : change.shards) {
    if (shard.shard.value() >= view.shards.size()) return std::nullopt;
    view.shards[shard.shard.value()] = shard.placement;
  }
  size_t end = 0;
  for (const OwnerRun& run : change.owners) {  // ascending, so that each is written once
    const size_t first = run.first.value();
    if (first < end || first + run.count > view.owners.size()) return std::nullopt;
    end = first + run.count;
    std::fill_n(view.owners.begin() + static_cast<std::ptrdiff_t>(first), run.count, run.owner);
  }
  SharedView after(std::move(view));
  return after.hash() == change.hash ? std::optional(after) : std::nullopt;
}

}  // namespace pando
