#include "node/timeline/timeline_lane_probe.h"

namespace pando {
namespace {

// Bounds the replications that a demoted primary never committed: the oldest are dropped.
constexpr size_t kReplicatingMax = 4096;

}  // namespace

TimelineLaneProbe::TimelineLaneProbe(Timeline& timeline, TimelineTrack& track,
                                     TimelineTrack& replicating)
    : timeline_(timeline),
      track_(track),
      replicating_(replicating),
      work_names_{timeline.Name({"aggregate", "aggregate", "shard"}),
                  timeline.Name({"update", "update", "shard"}),
                  timeline.Name({"commit", "commit", "shard"})},
      replication_(timeline.Name({"root to commit", "replicate", "shard"})) {}

void TimelineLaneProbe::Begin(LaneWork work, ShardId shard, Step step) {
  work_ = work;
  shard_ = shard;
  step_ = step;
  begin_ns_ = TimelineNow();
}

void TimelineLaneProbe::End() {
  if (!timeline_.Wants(step_)) return;
  track_.AddSpan(work_names_[static_cast<size_t>(work_)], begin_ns_, TimelineNow(), step_,
                 shard_.value());
}

void TimelineLaneProbe::OnReplicating(ShardId shard, Step step) {
  if (!timeline_.Wants(step)) return;
  if (since_.size() == kReplicatingMax) since_.clear();
  since_[{shard, step}] = TimelineNow();
}

void TimelineLaneProbe::OnCommitted(ShardId shard, Step step) {
  const auto since = since_.find({shard, step});
  if (since == since_.end()) return;
  replicating_.Add({.begin_ns = since->second,
                    .duration_ns = TimelineNow() - since->second,
                    .step = step.value(),
                    .name = replication_.value(),
                    .number = shard.value(),
                    .kind = TimelineKind::kFlow});
  since_.erase(since);
}

}  // namespace pando
