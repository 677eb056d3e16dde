// WrongBits: one process of a simulated job computes one wrong bit, sends one to a backup, or has
// one in its memory (P8, P41). Used by Cluster.
#pragma once

#include <optional>
#include <utility>

#include "tests/sim/population.h"

namespace pando::sim {

class WrongBits {
 public:
  // All outlive it.
  WrongBits(const Stage& stage, const Population& population, Checker& checker)
      : stage_(stage), population_(population), checker_(checker) {}

  // One wrong bit in what one backup is given: it makes another record than the others (P8).
  void TamperWithRoot(Envelope& envelope);
  // One wrong bit in the memory of one replica's newest record (P8). Other faults may leave the
  // other replicas no majority.
  void FlipMemory(const Process& process, const Lane& lane);
  // P41: one worker, once, in one of its micro-batches that another one verifies.
  bool FlipsBit(const Process& process, Step step, MicroBatch m);
  // With layer residency the parameters may be gone first: then nothing is compared, and the wrong
  // bits stay.
  void OnUnverified(Step step, MicroBatch m);
  void OnDrained(const Process& process);
  // After an unnoticed wrong bit the result has no reference.
  bool is_unnoticed() const { return is_unnoticed_; }

 private:
  const Stage stage_;
  const Population& population_;
  Checker& checker_;
  bool has_tampered_ = false;
  std::optional<std::pair<Step, MicroBatch>> flipped_;
  const Process* flipper_ = nullptr;
  bool is_unnoticed_ = false;
};

}  // namespace pando::sim
