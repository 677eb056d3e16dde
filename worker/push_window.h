// PushWindow: how far a worker's gradients may run ahead of the commits that they are part of, lane
// by lane. Who computes its gradients first would else send them all first, and while it does, the
// shards lack the other workers': nothing is committed, the servers' links carry nothing out, and
// the last replies begin when the last gradients are in. Over 1 Gbit/s a step of VGG-16 with 4
// workers and 4 servers takes 1.1 times as long so.
// The window begins at the last shard of the lane that lacks its version, in the order in which
// backward finishes gradients, and every worker sends what it has of that shard: so none waits for
// another's window. A lane whose window has not moved for kPatience waits for a worker that is
// late, and may be sent all of the step meanwhile. Called by the session. Threads: none.
#pragma once

#include <map>

#include "common/ids.h"
#include "proto/outbox.h"

namespace pando {

class PushWindow {
 public:
  static constexpr size_t kBytes = size_t{16} << 20;
  static constexpr Micros kPatience = std::chrono::seconds(1);

  // SIZE_MAX bytes: without end.
  explicit PushWindow(size_t bytes) : bytes_(bytes) {}

  // One look at all shards, from the last to the first: Begin, then Admits and after it Pass for
  // each that lacks the version, then End.
  void Begin(Micros now, Version lacking);
  // Whether what there is of the shard that comes next may be pushed to this lane.
  bool Admits(const PeerId& lane);
  // `bytes`: of its gradient.
  void Pass(const PeerId& lane, ShardId shard, size_t bytes);
  void End();

  // When to look again at the latest.
  Micros NextDeadline() const;
  // In another view other lanes have the shards.
  void Clear() { lanes_.clear(); }

 private:
  struct Lane {
    ShardId first;            // that lacks the version; meaningless while passed_bytes is 0
    size_t passed_bytes = 0;  // in this look
    bool is_held_up = false;  // in this look
    Micros open_at = kNever;  // when patience ends; kNever: nothing is held up
    Version open_to;          // all of the step that makes this version may go
  };

  const size_t bytes_;
  Micros now_{0};
  Version lacking_;
  std::map<PeerId, Lane> lanes_;
};

}  // namespace pando
