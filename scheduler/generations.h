// Generations begins the run's generations: the first when the job's nodes are ready, the others
// after a rollback, from a snapshot (P21). It chooses the servers that restore the snapshot. Part
// of the scheduler core. Threads: none.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "scheduler/commands.h"
#include "scheduler/view_maker.h"

namespace pando {

class Generations {
 public:
  struct Parts {
    Silences& silences;
    EvaluationRounds& evaluations;
    Snapshots& snapshots;
    SnapshotRequests& requests;
    GradientComparison& verification;
    OwnerPlan& owners;
    FinalWeights& final_weights;
    ViewMaker& view_maker;
  };
  // All outlive this.
  Generations(RunFacts& run, const Parts& parts) : run_(run), parts_(parts) {}

  // A member is ready: the run begins if it was the last one missing, else a view adds it.
  void OnMemberReady(Micros now);
  // A server cannot read the snapshot that this generation began from. If the snapshot is damaged,
  // or no server can read it, the next generation begins from an older one. Else it begins from the
  // same one, on other servers.
  void OnRestoreFailed(Micros now, const PeerId& from, const RestoreFailed& failed);
  // All shards have committed this version.
  void OnCommitted(Version committed);
  // Begins the generation of a pending rollback, once there are servers.
  void Tick(Micros now);

 private:
  struct Unreadable {  // the snapshot that this generation began from, until steps are made
    SnapshotRef snapshot;
    std::set<NodeId> servers;  // that could not restore it
    uint32_t rounds = 0;       // in which no server could
  };
  void StartWhenComplete(Micros now);
  void Start(Micros now);
  View FirstView(Micros now);
  std::vector<PlacementServer> RestoringServers(Micros now, const SnapshotRef& restore);
  bool HaveAllFailed() const;

  RunFacts& run_;
  const Parts parts_;
  Unreadable unreadable_;
};

}  // namespace pando
