// NormTree says which lanes a lane exchanges sums of partial values with (P16). Few lanes send
// theirs to one another. More than peers_max form groups of about the square root of their number.
// A group's first lane, its leader, adds its members' sums, exchanges the group's sum with the
// other leaders, and sends the total back. So a lane sends and receives about twice the square root
// of the number of lanes, instead of that number. Threads: any; immutable.
#pragma once

#include <vector>

#include "proto/messages.h"

namespace pando {

class NormTree {
 public:
  static constexpr size_t kPeersMax = 16;

  NormTree() = default;  // sends nothing, as that of a lane that leads no shard
  NormTree(const View& view, const PeerId& self, size_t peers_max);

  // Returns the shards whose values are in the sum that the lane sends up: by shard, whether it is
  // in it. They are the lane's own, or those of a leader's whole group.
  const std::vector<bool>& shards() const { return shards_; }
  // Returns the lanes that get this sum: the leader, or the other leaders. It begins with the next
  // one, so that not all send to the same one first.
  const std::vector<PeerId>& up() const { return up_; }
  // Returns the lanes that get the total over all shards: the other members of a leader's group.
  const std::vector<PeerId>& down() const { return down_; }
  // Returns whether sums from this lane are taken.
  bool HasPeer(const PeerId& lane) const;

 private:
  std::vector<bool> shards_;
  std::vector<PeerId> up_;
  std::vector<PeerId> down_;
};

}  // namespace pando
