// LocalRound computes a micro-batch as a round of local steps (train.local_steps), as in DiLoCo
// (Douillard et al. 2023, arXiv:2311.08105): an inner optimizer makes steps from a version, and the
// round's gradient is the version minus the local parameters. MicroBatchPass uses it.
//
// The inner optimizer starts each round afresh, so a round is a function of the version and of its
// samples. It uses + − × ÷ √ only (P36).
#pragma once

#include <functional>
#include <span>

#include "common/batch.h"
#include "common/float_buffer.h"
#include "common/status.h"
#include "models/network.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "plan/job_plan.h"
#include "plan/optimizer_turns.h"

namespace pando {

// Threads: one at a time. Owns: the local parameters and the inner optimizer's state.
class LocalRound {
 public:
  // REQUIRES: the plan's job has local steps, and the network is on the CPU. Both outlive it.
  LocalRound(Network& network, const JobPlan& plan);

  // Makes the round. `version`: the flat vector of all parameters. Writes what the round pushes to
  // `gradient`, a flat vector, all of it: sums over the batch's samples. Returns the batch's score.
  // Stops at the first failure of `check_wanted`, which is called before each step.
  Result<BatchScore> Run(const Batch& batch, MicroBatchName name, const float* version,
                         std::span<float> gradient, const std::function<Status()>& check_wanted);

 private:
  BatchScore MakeStep(const Batch& batch, MicroBatchName name, std::span<float> gradient);
  void Update(std::span<const float> gradient, uint32_t sample_count);
  void WriteDifference(const float* version, float sample_count, std::span<float> gradient) const;

  Network& network_;
  const JobPlan& plan_;
  const InnerOptimizer inner_;
  const Schedule schedule_;
  const Optimizer optimizer_;
  FloatBuffer parameters_;
  FloatBuffer state_;
  float lr_ = 0;              // of the current round
  uint32_t step_ = 0;         // of the current round
  double beta1_power_ = 1.0;  // beta1 to the power step_
  double beta2_power_ = 1.0;
};

// Returns samples [first, last) of the batch.
Batch Part(const Batch& batch, uint32_t first, uint32_t last);

}  // namespace pando
