// PushGroups cuts the shards of each receiver of pushes, a lane or a relay, into groups,
// and knows which groups are ready to be sent. A group is what a message is made of: a lane gets
// few messages, and can commit and answer the first ones while others are still on their way.
// PushSender keeps it. What it does for a shard does not take longer with more shards.
// Threads: none.
#pragma once

#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "plan/group_bytes.h"
#include "proto/messages.h"

namespace pando {

class PushGroups {
 public:
  static constexpr size_t kBytesMax = kGroupBytesMax;

  struct Receiver {
    PeerId peer;
    bool is_relay = false;  // it gets gradients by P6a, which need no window
    size_t bytes = 0;       // of the gradients of its shards
  };
  struct Group {
    size_t receiver = 0;
    std::vector<ShardId> shards;  // ascending
    size_t ready_count = 0;       // of the shards that have gradients to be sent
  };

  // `bytes_max`: of a group, in place of kBytesMax.
  explicit PushGroups(size_t bytes_max = kBytesMax) : bytes_max_(bytes_max) {}

  // Makes the groups. No shard has gradients. `receivers`: the index of each shard's receiver.
  void Cut(std::vector<Receiver> all, const std::vector<size_t>& receivers,
           const std::vector<size_t>& shard_bytes);
  const std::vector<Receiver>& receivers() const { return receivers_; }
  const Group& group(size_t index) const { return groups_[index]; }
  // Returns the bytes of one group of average size for each lane.
  size_t RoundBytes() const;

  // Forgets which shards have gradients to be sent. `takes_parts`: groups in which not every shard
  // has any are ready too, because the step's computing is over.
  void StartOver(bool takes_parts);
  // The shard has gradients to be sent.
  void NoteReady(ShardId shard) { Note(shard, /*is_group_ready=*/false); }
  // The same, and its group is ready, even if other shards of it have none.
  void NoteReadyAlone(ShardId shard) { Note(shard, /*is_group_ready=*/true); }

  bool has_ready() const { return !by_first_.empty() || !for_relay_.empty(); }
  // Takes ready groups, whose shards then have no gradients to be sent: those for relays; those
  // at the front, in the shards' order, as long as admits(first shard); those at the back, in the
  // opposite order, as long as admits(last shard).
  std::vector<size_t> TakeForRelay();
  template <class Admits>
  void TakeFromFront(const Admits& admits, std::vector<size_t>* taken) {
    while (!by_first_.empty() && admits(by_first_.begin()->first))
      taken->push_back(Take(by_first_.begin()->second));
  }
  template <class Admits>
  void TakeFromBack(const Admits& admits, std::vector<size_t>* taken) {
    while (!by_last_.empty() && admits(by_last_.rbegin()->first))
      taken->push_back(Take(by_last_.rbegin()->second));
  }

 private:
  void Note(ShardId shard, bool is_group_ready);
  size_t Take(size_t index);

  const size_t bytes_max_;
  std::vector<Receiver> receivers_;
  std::vector<Group> groups_;
  std::vector<size_t> group_of_;  // by shard
  std::vector<bool> is_ready_;    // by shard
  bool takes_parts_ = false;
  // The ready groups, by their first and by their last shard, and those for relays.
  std::set<std::pair<ShardId, size_t>> by_first_;
  std::set<std::pair<ShardId, size_t>> by_last_;
  std::set<size_t> for_relay_;
};

}  // namespace pando
