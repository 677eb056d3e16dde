// PushWindow: how far a worker's gradients may run ahead of the commits that they are part of, lane
// by lane. Who computes its gradients first would else send them all first, and while it does, the
// shards lack the other workers': nothing is committed, the servers' links carry nothing out, and
// the last replies begin when the last gradients are in. Over 1 Gbit/s a step of VGG-16 with 4
// workers and 4 servers took 6.0 s so, and takes 5.6.
// The window begins at the last shard of the lane that lacks its version, in the order in which
// backward finishes gradients, and every worker sends what it has of that shard: so none waits for
// another's window. A lane whose window does not move for a while waits for a worker that is late,
// and may be sent all of the step meanwhile; so may one that waits for this worker.
// Called by the session. Threads: none.
#pragma once

#include <map>

#include "common/ids.h"
#include "proto/outbox.h"

namespace pando {

class PushWindow {
 public:
  static constexpr size_t kBytes = size_t{16} << 20;
  static constexpr Micros kPatienceMax = std::chrono::seconds(1);

  // SIZE_MAX bytes: without end.  REQUIRES: some bytes.
  explicit PushWindow(size_t bytes) : bytes_(bytes) {}

  // One look at all shards, from the last to the first: Begin, then for each that lacks the version
  // Admits, as often as there is something to push, and Pass, then End. `patience`: how long a
  // window may stay where it is.
  void Begin(Micros now, Version lacking, Micros patience);
  // Whether what there is of the shard that comes next may be pushed to this lane.
  bool Admits(const PeerId& lane);
  // `bytes`: of its gradient. `is_all_here`: all that this worker gives of it; if not, it is this
  // worker that others may be waiting for.
  void Pass(const PeerId& lane, ShardId shard, size_t bytes, bool is_all_here);
  void End();
  // In place of a look: there is nothing to push.
  void Rest();

  // When to look again at the latest.
  Micros NextDeadline() const;
  // In another view other lanes have the shards.
  void Clear() { lanes_.clear(); }

 private:
  struct Lane {
    ShardId first;                   // of this look, or of the last one until Pass
    bool is_waiting_for_us = false;  // the first shard: in this look
    size_t passed_bytes = 0;         // in this look
    bool is_held_up = false;         // in this look
    Micros open_at = kNever;         // when patience ends; kNever: nothing is held up
    Version open_to;                 // all of the step that makes this version may go
  };

  const size_t bytes_;
  Micros now_{0};
  Micros patience_{0};
  Version lacking_;
  std::map<PeerId, Lane> lanes_;
};

}  // namespace pando
