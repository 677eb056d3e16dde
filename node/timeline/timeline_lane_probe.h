// TimelineLaneProbe records the work of one of a server's lanes, shard by shard, and how long each
// version took from its root to its commit. Threads: the lane's.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>

#include "common/timeline/timeline.h"
#include "server/lane_probe.h"

namespace pando {

class TimelineLaneProbe : public LaneProbe {
 public:
  // Both outlive it. `replicating` takes the time from root to commit, in which the lane does other
  // work.
  TimelineLaneProbe(Timeline& timeline, TimelineTrack& track, TimelineTrack& replicating);
  void Begin(LaneWork work, ShardId shard, Step step) override;
  void End() override;
  void OnReplicating(ShardId shard, Step step) override;
  void OnCommitted(ShardId shard, Step step) override;

 private:
  const Timeline& timeline_;
  TimelineTrack& track_;
  TimelineTrack& replicating_;
  const std::array<TimelineNameId, 3> work_names_;  // by LaneWork
  const TimelineNameId replication_;
  LaneWork work_{};
  ShardId shard_;
  Step step_;
  int64_t begin_ns_ = 0;
  std::map<std::pair<ShardId, Step>, int64_t> since_;  // begun but not committed
};

}  // namespace pando
