// Schedule computes the optimizer's scalars at each step (P36). Everything with cos, pow or exp is
// computed here, once, in double, and sent to the servers as floats. The formulas are those of
// torch.optim.lr_scheduler. The scheduler and the serial trainer call it. Threads: any; immutable.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/job.h"
#include "plan/optimizer_turns.h"
#include "plan/rate_table.h"
#include "proto/messages.h"

namespace pando {

class Schedule {
 public:
  // REQUIRES: a table's rates and the groups' texts can be read.
  Schedule(const OptimizerOptions& optimizer, const ScheduleOptions& schedule, uint64_t step_count);
  // Returns the scalars of this step.  REQUIRES: step < step_count.
  StepScalars At(Step step) const;
  // Returns the scalars of steps [first, first + count), cut at the end of the job.
  std::vector<StepScalars> Block(Step first, uint64_t count) const;

 private:
  double LearningRate(uint64_t step) const;
  double Momentum(uint64_t step, const OptimizerOptions& options) const;
  double NadamMu(uint64_t step, uint64_t count) const;
  void SetNadamFactors(uint64_t step, StepScalars* scalars) const;
  OptimizerTurns turns_;
  OptimizerOptions optimizer_;  // of a job without groups
  ScheduleOptions schedule_;
  uint64_t step_count_;
  RateTable rates_;  // kTable
  // NAdam: the products of the mus of steps 0 to i, until they are too small to change a factor.
  std::vector<double> mu_products_;
};

}  // namespace pando
