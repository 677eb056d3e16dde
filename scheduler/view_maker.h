// ViewMaker makes and publishes views: which processes take part, where the shards are, and which
// worker computes what (P17, P24). It begins the run's generations: the first when the job's nodes
// are ready, the others after a rollback, from a snapshot (P21). It repeats each view until every
// lane and worker has acknowledged it. Part of the scheduler core. Threads: none.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/commands.h"
#include "scheduler/final_weights.h"
#include "scheduler/placement/owner_plan.h"

namespace pando {

class ViewMaker {
 public:
  struct Parts {
    Silences& silences;
    EvaluationRounds& evaluations;
    Snapshots& snapshots;
    Ownership& ownership;
    SnapshotRequests& requests;
    GradientComparison& verification;
    OwnerPlan& owners;
    FinalWeights& final_weights;
  };
  // All outlive this.
  ViewMaker(RunFacts& run, const Parts& parts) : run_(run), parts_(parts) {}

  // A member is ready: the run begins if it was the last one missing, else a view adds it.
  void OnMemberReady(Micros now);
  // Begins the generation of a pending rollback, once there are servers. Makes the view that is
  // due.
  void Tick(Micros now);
  Micros NextDeadline() const;

  void OnSynced(Micros now, const PeerId& from, const Synced& synced);
  void OnViewAck(Micros now, const Envelope& envelope, const ViewAck& ack);
  // A server cannot read the snapshot that this generation began from. If the snapshot is damaged,
  // or no server can read it, the next generation begins from an older one. Else it begins from the
  // same one, on other servers.
  void OnRestoreFailed(Micros now, const PeerId& from, const RestoreFailed& failed);
  // All shards have committed this version.
  void OnCommitted(Version committed);
  void RepeatTo(const PeerId& lane);
  void Forget(const Member& member) { acked_.Forget(member.peer.incarnation); }

  // What the run cannot continue without: "no worker"; empty if it continues.
  std::string WaitingText() const;

 private:
  struct Unreadable {  // the snapshot that this generation began from, until steps are made
    SnapshotRef snapshot;
    std::set<NodeId> servers;  // that could not restore it
    uint32_t rounds = 0;       // in which no server could
  };
  void StartWhenComplete(Micros now);
  void RollBack(Micros now);
  void StartGeneration(Micros now);
  View FirstView(Micros now);
  std::vector<PlacementServer> RestoringServers(Micros now, const SnapshotRef& restore);
  bool HaveAllFailed() const;
  void RequestViewForGroup(Micros now);
  void Make(Micros now);
  void AddSynced(View& next);
  void Publish(Micros now, View next);
  bool HaveAllAcked() const;

  RunFacts& run_;
  const Parts parts_;
  Unreadable unreadable_;
  // Shard, newcomer: in sync, says its source.
  std::set<std::pair<uint32_t, SyncingBackup>> synced_;
  LaneAcks<ViewId> acked_;
};

}  // namespace pando
