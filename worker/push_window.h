// PushWindow: how far a worker's gradients may run ahead of the commits that they are part of, lane
// by lane. Without a window the fastest worker sends all its gradients first, and meanwhile the
// shards lack the other workers': nothing is committed, the servers' links carry nothing out, and
// the last replies begin when the last gradients are in. Over 1 Gbit/s a step of VGG-16 with 4
// workers and 4 servers takes 5.6 s, and took 6.0 s without windows.
// It begins at the last shard of the lane that lacks its version, in the order in which backward
// finishes gradients, and every worker sends what it has of that shard: so none waits for another's
// window. Once backward is over it begins at the first one, which the next forward reads first, and
// the rest gets what the link has left (priority as in P3: Jayarajan et al., MLSys 2019,
// arXiv:1905.03960); the last shard goes then as well, for a worker whose backward goes on has its
// window there. A lane whose windows do not move for a while waits for a worker that is late, and
// may be sent all of the step meanwhile; so may one that waits for this worker.
// Called by PushSender. Threads: none.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "common/ids.h"
#include "proto/outbox.h"

namespace pando {

class PushWindow {
 public:
  // Of a lane's gradients an eighth, within these bounds: what is under way when backward ends is
  // not overtaken any more.
  static constexpr size_t kBytesMin = size_t{4} << 20;
  static constexpr size_t kBytesMax = size_t{16} << 20;
  static constexpr size_t kShareOfLane = 8;
  static constexpr Micros kPatienceMax = std::chrono::seconds(1);

  // `bytes_max`: of a window; SIZE_MAX: without end.  REQUIRES: some bytes.
  explicit PushWindow(size_t bytes_max) : bytes_max_(bytes_max) {}

  // In another view other lanes have the shards: first Clear, then Add for each shard with the
  // bytes of its gradient.
  void Clear() { lanes_.clear(); }
  void Add(const PeerId& lane, size_t bytes) { lanes_[lane].all_bytes += bytes; }

  // One look at all shards: Begin; if all of the step is computed FromFirst, and from the first
  // shard to the last, for each that lacks the version, Admits, as often as there is something to
  // push, and Pass; FromLast, and the same from the last to the first; End.
  // `patience`: how long a window may stay where it is.
  void Begin(Micros now, Version lacking, Micros patience);
  void FromFirst();
  void FromLast();
  // Whether the gradients that are here of the shard that comes next may be pushed to this lane.
  bool Admits(const PeerId& lane);
  // `bytes`: of its gradient. `is_all_here`: all that this worker gives of it; if not, it is this
  // worker that others may be waiting for.
  void Pass(const PeerId& lane, ShardId shard, size_t bytes, bool is_all_here);
  void End();
  // In place of a look: there is nothing to push.
  void Rest();

  // When to look again at the latest.
  Micros NextDeadline() const;

 private:
  enum Edge : uint8_t { kFirst, kLast };  // where a look begins
  struct Lane {
    size_t all_bytes = 0;              // of its gradients
    std::array<ShardId, 2> begins_at;  // the windows, by Edge; of this look, or of the last one
    bool is_waiting_for_us = false;    // the shard where this look began
    size_t passed_bytes = 0;           // in this look from this end
    bool is_held_up = false;           // in this look
    Micros open_at = kNever;           // when patience ends; kNever: nothing is held up
    Version open_to;                   // all of the step that makes this version may go
  };

  void From(Edge edge);
  size_t Room(const Lane& lane) const;

  const size_t bytes_max_;
  Edge edge_ = kLast;         // of this look
  bool is_computed_ = false;  // as far as this look knows
  Micros now_{0};
  Micros patience_{0};
  Version lacking_;
  std::map<PeerId, Lane> lanes_;
};

}  // namespace pando
