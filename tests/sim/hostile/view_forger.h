// ViewForger sends to a simulated job with keys, until the run ends, what takes the scheduler's
// signature (P44):
//  - to lanes and workers, as a member of the view: views that the scheduler has not made;
//  - to the scheduler, as a process that has registered and is in no view: that it has a newer view
//    than the scheduler, and forged proofs of that (P26).
// Used by Cluster.
#pragma once

#include "tests/sim/population.h"

namespace pando::sim {

class ViewForger {
 public:
  // All outlive it.
  ViewForger(const Stage& stage, const Population& population)
      : stage_(stage), population_(population), chance_(stage.world.chance().Fork("view forger")) {}
  void Begin();

 private:
  void SendAndGoOn();
  void SendView();
  void Claim();
  View MakeView();

  const Stage stage_;
  const Population& population_;
  Chance chance_;
  PeerId outsider_;
};

}  // namespace pando::sim
