// ViewMaker makes and publishes views: which processes take part, where the shards are, and which
// worker computes what (P17, P24). It repeats each view until every lane has acknowledged it. Part
// of the scheduler core. Threads: none.
#pragma once

#include <set>
#include <string>
#include <utility>

#include "scheduler/final_weights.h"
#include "scheduler/members/lane_acks.h"
#include "scheduler/placement/owner_plan.h"
#include "scheduler/silences.h"

namespace pando {

class ViewMaker {
 public:
  // The least time between two views that move shards, unless a report arrives.
  static constexpr Micros kMoveInterval = std::chrono::milliseconds(200);

  struct Parts {  // all outlive this
    const RunMembers& membership;
    ViewLedger& views;
    const RunPhase& phase;
    Rollback& rollback;
    Silences& silences;
    OwnerPlan& owners;
    RunProgress& progress;
    EvaluationRounds& evaluations;
    FinalWeights& final_weights;
    FaultLedger& faults;
    JournaledOutbox& outbox;
  };
  ViewMaker(const JobPlan& plan, const Parts& parts) : plan_(plan), parts_(parts) {}

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

  const JobPlan& plan_;
  const Parts parts_;
  std::set<std::pair<uint32_t, SyncingBackup>>
      synced_;  // shard, newcomer: in sync, says its source
  LaneAcks<ViewId> acked_;
};

}  // namespace pando
