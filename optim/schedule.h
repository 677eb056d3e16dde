// Schedule computes the optimizer's scalars at each step (P36). Everything with cos, pow or exp is
// computed here, once, in double, and sent to the servers as floats. The formulas are those of
// torch.optim.lr_scheduler. The scheduler and the serial trainer call it. Threads: any; immutable.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "plan/job.h"
#include "plan/optimizer_turns.h"
#include "plan/rate_table.h"
#include "proto/messages.h"

namespace pando {

// Returns whether the optimizer has the bias corrections of Adam.
inline bool HasBetas(OptimizerKind kind) {
  return kind == OptimizerKind::kAdam || kind == OptimizerKind::kAdamW ||
         kind == OptimizerKind::kLamb || kind == OptimizerKind::kNadam;
}

// Sets the corrections of the update after `steps` others. `beta1_power` and `beta2_power` are the
// betas to the power steps + 1; they are read if the optimizer has betas. Only the scheduler may
// compute them with pow (P36).
inline void SetCorrections(const OptimizerOptions& options, uint64_t steps, double beta1_power,
                           double beta2_power, StepScalars* scalars) {
  if (options.kind == OptimizerKind::kAdagrad)
    scalars->bias_correction1 =
        static_cast<float>(1.0 + static_cast<double>(steps) * options.lr_decay);
  if (!HasBetas(options.kind)) return;
  scalars->bias_correction1 = static_cast<float>(1.0 - beta1_power);
  scalars->bias_correction2_sqrt = static_cast<float>(std::sqrt(1.0 - beta2_power));
}

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
