// OptimizerTurns are groups of parameters that have their own optimizers and train in turns, as the
// networks of a GAN (optimizer.groups, optimizer.turns). A job without groups has one group, which
// every step trains. Schedule and Optimizer use it. Threads: any; immutable.
#pragma once

#include <cstdint>
#include <vector>

#include "common/ids.h"
#include "common/result.h"
#include "plan/job.h"

namespace pando {

class OptimizerTurns {
 public:
  // Reads the groups' texts, for example "type=adam beta1=0.5". Other options are those of the job.
  // kInvalidArgument names the text, or the turn of a group that does not exist.
  static Result<OptimizerTurns> Parse(const OptimizerOptions& options);
  // REQUIRES: Parse(options) is ok.
  explicit OptimizerTurns(const OptimizerOptions& options);

  // Returns the group that this step trains. The parameters of the others stay as they are.
  uint32_t GroupAt(Step step) const { return turns_[step.value() % turns_.size()]; }
  const OptimizerOptions& OptionsAt(Step step) const { return groups_[GroupAt(step)]; }
  // Returns how many earlier steps have trained this step's group.
  uint64_t StepsBefore(Step step) const;
  const std::vector<OptimizerOptions>& groups() const { return groups_; }

 private:
  OptimizerTurns() = default;

  std::vector<OptimizerOptions> groups_;  // without texts of groups
  std::vector<uint32_t> turns_;           // the groups of steps 0, 1, ..., which repeat
};

// InnerOptimizer makes the local steps of rounds (train.local_steps).
struct InnerOptimizer {
  OptimizerOptions options;
  ScheduleOptions schedule;  // of its rate, by the step of the run to which a round belongs
};
// Reads train.inner. kInvalidArgument says what was expected.
Result<InnerOptimizer> ReadInner(const Job& job);

}  // namespace pando
