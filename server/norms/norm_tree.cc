#include "server/norms/norm_tree.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

namespace pando {

NormTree::NormTree(const View& view, const PeerId& self, size_t peers_max)
    : shards_(view.shards.size()) {
  std::set<PeerId> primaries;
  for (const ShardPlacement& placement : view.shards) {
    if (placement.primary.node != kUnknownNode) primaries.insert(placement.primary);
  }
  if (!primaries.contains(self)) return;
  const std::vector<PeerId> lanes(primaries.begin(), primaries.end());
  const auto root = static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(lanes.size()))));
  const size_t group_size = lanes.size() <= peers_max ? 1 : root;
  const auto place = static_cast<size_t>(std::ranges::lower_bound(lanes, self) - lanes.begin());
  const size_t first = place / group_size * group_size;
  const auto group = std::span(lanes).subspan(first, std::min(group_size, lanes.size() - first));
  const bool is_leader = place == first;
  if (is_leader) {
    for (size_t i = first + group_size; i < lanes.size(); i += group_size) up_.push_back(lanes[i]);
    for (size_t i = 0; i < first; i += group_size) up_.push_back(lanes[i]);
    down_.assign(group.begin() + 1, group.end());
  } else {
    up_ = {group.front()};
  }
  for (size_t s = 0; s < view.shards.size(); ++s) {
    const PeerId& primary = view.shards[s].primary;
    shards_[s] = is_leader ? std::ranges::binary_search(group, primary) : primary == self;
  }
}

bool NormTree::HasPeer(const PeerId& lane) const {
  const auto has = [&](const std::vector<PeerId>& lanes) {
    return std::ranges::find(lanes, lane) != lanes.end();
  };
  return has(up_) || has(down_);
}

}  // namespace pando
