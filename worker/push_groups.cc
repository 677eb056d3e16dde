#include "worker/push_groups.h"

#include <algorithm>

namespace pando {

// Groups are cut from the back, where backward begins. What is left at the front, which the next
// forward reads first, is the smallest group. The last shard has the step's metrics, which a
// program gives last of all. It is a group by itself where there are several, so that no other
// shard waits for it.
void PushGroups::Cut(std::vector<Receiver> all, const std::vector<size_t>& receivers,
                     const std::vector<size_t>& shard_bytes) {
  receivers_ = std::move(all);
  for (size_t s = 0; s < receivers.size(); ++s) receivers_[receivers[s]].bytes += shard_bytes[s];
  groups_.clear();
  group_of_.assign(receivers.size(), 0);
  struct Open {
    size_t group = 0;
    size_t bytes = SIZE_MAX;
  };
  std::vector<Open> open(receivers_.size());
  for (size_t s = receivers.size(); s-- > 0;) {
    Open& latest = open[receivers[s]];
    if (latest.bytes >= GroupBytes(receivers_[receivers[s]].bytes, bytes_max_)) {
      latest = {.group = groups_.size(), .bytes = 0};
      groups_.push_back({.receiver = receivers[s]});
    }
    latest.bytes += shard_bytes[s];
    groups_[latest.group].shards.emplace_back(static_cast<uint32_t>(s));
    group_of_[s] = latest.group;
    const bool has_metrics = s + 1 == receivers.size();
    if (has_metrics && receivers_[receivers[s]].bytes > bytes_max_) latest.bytes = SIZE_MAX;
  }
  for (Group& group : groups_) std::ranges::reverse(group.shards);
  StartOver(takes_parts_);
}

size_t PushGroups::RoundBytes() const {
  std::vector<size_t> counts(receivers_.size());
  for (const Group& group : groups_) ++counts[group.receiver];
  size_t bytes = 0;
  for (size_t i = 0; i < receivers_.size(); ++i)
    bytes += receivers_[i].is_relay ? 0 : receivers_[i].bytes / counts[i];
  return bytes;
}

void PushGroups::StartOver(bool takes_parts) {
  takes_parts_ = takes_parts;
  is_ready_.assign(group_of_.size(), false);
  for (Group& group : groups_) group.ready_count = 0;
  by_first_.clear();
  by_last_.clear();
  for_relay_.clear();
}

void PushGroups::Note(ShardId shard, bool is_group_ready) {
  const size_t index = group_of_[shard.value()];
  Group& group = groups_[index];
  if (!is_ready_[shard.value()]) ++group.ready_count;
  is_ready_[shard.value()] = true;
  if (group.ready_count < group.shards.size() && !takes_parts_ && !is_group_ready) return;
  if (receivers_[group.receiver].is_relay) {
    for_relay_.insert(index);
  } else {
    by_first_.insert({group.shards.front(), index});
    by_last_.insert({group.shards.back(), index});
  }
}

std::vector<size_t> PushGroups::TakeForRelay() {
  std::vector<size_t> taken;
  while (!for_relay_.empty()) taken.push_back(Take(*for_relay_.begin()));
  return taken;
}

size_t PushGroups::Take(size_t index) {
  Group& group = groups_[index];
  for (const ShardId shard : group.shards) is_ready_[shard.value()] = false;
  group.ready_count = 0;
  by_first_.erase({group.shards.front(), index});
  by_last_.erase({group.shards.back(), index});
  for_relay_.erase(index);
  return index;
}

}  // namespace pando
