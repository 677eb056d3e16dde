// ScalarBlocks: the optimizer's scalars, which only the scheduler computes (P36), in blocks of
// kScalarsPerBlock steps. A lane asks for the block in use and for the next one, so that steps go
// on for a while without a scheduler (P28). Part of the lane. Threads: none. Owns: at most two
// blocks.
#pragma once

#include <map>
#include <vector>

#include "proto/view_member.h"
#include "server/replicas.h"

namespace pando {

class ScalarBlocks {
 public:
  // All outlive the part.
  ScalarBlocks(ViewMember& member, const Replicas& replicas, const JobPlan& plan)
      : member_(member), replicas_(replicas), plan_(plan) {}

  void OnScalars(const Scalars& scalars);
  // Null while they are not known.
  const StepScalars* Find(Step step) const;

  void Clear();  // a new generation begins
  void Tick(Micros now);
  Micros NextDeadline() const { return LacksAny() ? ask_at_ : kNever; }

 private:
  bool IsWanted(uint64_t block) const;
  bool LacksAny() const;

  ViewMember& member_;
  const Replicas& replicas_;
  const JobPlan& plan_;
  std::map<uint64_t, std::vector<StepScalars>> blocks_;  // by index of block
  Micros ask_at_{0};
};

}  // namespace pando
