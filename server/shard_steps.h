// ShardSteps leads a primary's shards from step to step: it takes contributions, makes the next
// version once all its inputs are known, and commits it (P8, P9). It is a part of the lane.
//
//   tree complete, scalars and factors known | without backups: made and committed at once
//                                            | with backups: sealed; its root goes out, it is made
//                                            | in Tick, and committed once all required ones have
//                                            | acknowledged it
//
// Threads: none. Owns: the set of sealed shards.
#pragma once

#include <set>

#include "server/lane_probe.h"
#include "server/norms/norms.h"
#include "server/replication.h"
#include "server/replies.h"
#include "server/scalar_blocks.h"
#include "server/shard_snapshots.h"

namespace pando {

class ShardSteps {
 public:
  // The parts that supply a version's inputs and those that use it. All outlive this part.
  struct Parts {
    Replicas& replicas;
    const ScalarBlocks& scalars;
    Norms& norms;
    Replication& replication;
    Inquiry& inquiry;
    ShardSnapshots& snapshots;
    ProgressReport& progress;
    Replies& replies;
    LaneProbe* probe;  // may be null
  };
  ShardSteps(const JobPlan& plan, const Parts& parts) : plan_(plan), parts_(parts) {}

  void OnPush(Micros now, const Envelope& envelope, const Push& push);
  // P22. Takes the roots with which backups answer a promoted primary.
  void OnRoot(Micros now, const Envelope& envelope, const Root& root);
  // Makes the versions that new scalars or a released pin allow.
  void AdvanceAll(Micros now) {
    for (auto& [id, replica] : parts_.replicas.all()) {
      if (replica.is_primary()) TryAdvance(now, replica.shard);
    }
  }
  // Makes the versions that new values of other shards allow.
  void AdvanceByNorms(Micros now) {
    if (!parts_.norms.TakeNews()) return;
    for (auto& [id, replica] : parts_.replicas.all()) {
      if (replica.is_primary() && replica.shard.has_partials()) TryAdvance(now, replica.shard);
    }
  }
  // Is called when a replica has got its data.
  void OnRestored(Micros now, ShardId shard);
  // Makes the sealed versions. Must be called before a new view is entered, because they belong to
  // the view in which they were sealed.
  void MakeSealed();
  void Tick(Micros now);
  Micros NextDeadline() const { return sealed_.empty() ? kNever : Micros(0); }

 private:
  Shard::Taken Add(Shard& shard, const PushItem& item) {
    const LaneProbe::Scope work(parts_.probe, LaneWork::kAggregate, item.shard, item.step);
    return shard.Add(item);
  }
  void TryAdvance(Micros now, Shard& shard);
  template <class Make>
  void MakeNext(Shard& shard, const Make& make);
  void Commit(Micros now, Shard& shard);
  void Show(Micros now, Shard& shard);

  const JobPlan& plan_;
  const Parts parts_;
  std::set<ShardId> sealed_;  // the shards whose sealed versions Tick makes
};

}  // namespace pando
