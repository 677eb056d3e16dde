// Faults chooses the faults of the cluster and their times from the seed. A fault happens at its
// time, or at the next message of some kind after it: most bugs are between two messages.
#pragma once

#include <optional>
#include <vector>

#include "proto/messages.h"
#include "tests/sim/population.h"
#include "tests/sim/swarm.h"

namespace pando::sim {

class Faults {
 public:
  static constexpr int64_t kSlownessMax = 40;  // of a slow worker, times as slow
  // All outlive it.
  Faults(const Stage& stage, Population& population) : stage_(stage), population_(population) {}
  void Plan();
  // Called before each message leaves.
  void OnSent(const Envelope& envelope);
  void End() { waiting_.clear(); }

 private:
  struct Waiting {
    FaultKind kind;
    size_t message;  // kind of message
  };
  void Come(FaultKind kind);
  void Do(FaultKind kind);
  Process* Pick(Role role);
  Process* PickAny();
  void KillSome(Role role, uint64_t count);
  void KillSeveral();
  void Pause();
  void CutOff(bool is_one_way);
  void TroubleDisk();
  void SlowWorker();
  Micros Duration(uint64_t max_ms);

  const Stage stage_;
  Population& population_;
  std::vector<Waiting> waiting_;
  std::optional<Envelope> at_;  // the message that set the fault off; its payload is not kept
};

}  // namespace pando::sim
