// ScalarBlocks keeps the optimizer's scalars, which only the scheduler computes (P36), in blocks of
// kScalarsPerBlock steps. It asks for the current and the next block, so that steps go on for a
// while without a scheduler (P28). Owns: at most two blocks.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "proto/messages.h"
#include "server/lane_part.h"

namespace pando {

class ScalarBlocks : LanePart {
 public:
  using LanePart::LanePart;

  void OnScalars(const Scalars& scalars);
  // Returns null while the step's scalars are unknown.
  const StepScalars* Find(Step step) const;

  // Begins a new generation. Scalars are the same in every generation. But with an early stop the
  // scheduler decides again how far steps may go (P32), so the blocks are dropped.
  void Clear() {
    if (plan_.job.may_stop_early()) blocks_.clear();
  }
  void Tick(Micros now);
  Micros NextDeadline() const { return LacksAny() ? ask_at_ : kNever; }

 private:
  bool IsWanted(uint64_t block) const;
  bool LacksAny() const;

  std::map<uint64_t, std::vector<StepScalars>> blocks_;  // by block index
  Micros ask_at_{0};
};

}  // namespace pando
