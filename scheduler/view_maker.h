// ViewMaker makes and publishes views: which processes take part, where the shards are, and which
// worker computes what (P17, P24). It repeats each view until every lane and worker has
// acknowledged it. Part of the scheduler core. Threads: none.
#pragma once

#include <set>
#include <string>
#include <utility>

#include "scheduler/final_weights.h"
#include "scheduler/placement/owner_plan.h"

namespace pando {

class ViewMaker {
 public:
  // The least time between two views that move shards, unless a report arrives.
  static constexpr Micros kMoveInterval = std::chrono::milliseconds(200);

  // All outlive this.
  ViewMaker(RunFacts& run, Silences& silences, OwnerPlan& owners, EvaluationRounds& evaluations,
            FinalWeights& final_weights)
      : run_(run),
        silences_(silences),
        owners_(owners),
        evaluations_(evaluations),
        final_weights_(final_weights) {}

  // Makes the view that is due.
  void Tick(Micros now);
  Micros NextDeadline() const;
  // Makes it the current view. RepeatTo sends it in this tick, after the journal has it.
  void Publish(Micros now, View next);

  void OnSynced(Micros now, const PeerId& from, const Synced& synced);
  void OnViewAck(Micros now, const Envelope& envelope, const ViewAck& ack);
  void RepeatTo(const PeerId& lane);
  void Forget(const Member& member) { acked_.Forget(member.peer.incarnation); }
  void StartGeneration() { synced_.clear(); }

  // Joiners and newcomers in sync come in groups: one view for all of them.
  void RequestViewForGroup(Micros now);
  // What the run cannot continue without: "no worker"; empty if it continues.
  std::string WaitingText() const;

 private:
  void Make(Micros now);
  void AddSynced(View& next);
  bool HaveAllAcked() const;

  RunFacts& run_;
  Silences& silences_;
  OwnerPlan& owners_;
  EvaluationRounds& evaluations_;
  FinalWeights& final_weights_;
  // Shard, newcomer: in sync, says its source.
  std::set<std::pair<uint32_t, SyncingBackup>> synced_;
  LaneAcks<ViewId> acked_;
};

}  // namespace pando
