// StepAggregators collects the contributions that a primary receives. If its newest version is v,
// they belong to steps v to v + staleness (P4). Each of these steps has an Aggregator; later steps
// use it again. Shard calls it. Threads: none.
#pragma once

#include <deque>

#include "plan/step_plan.h"
#include "server/aggregator.h"

namespace pando {

class StepAggregators {
 public:
  // `steps` outlives it. The other arguments are those of Aggregator.
  StepAggregators(const StepPlan& steps, size_t float_count, const ShardCodec* codec,
                  const BufferSource& buffers)
      : steps_(steps) {
    for (uint32_t i = 0; i <= steps.staleness(); ++i)
      aggregators_.emplace_back(float_count, codec, buffers);
  }

  // Forgets everything, and collects nothing.
  void Stop() {
    for (Aggregator& aggregator : aggregators_) aggregator.Begin(MicroBatchTree({}));
  }
  // Forgets everything, and begins with the step that updates this version.
  void Start(Version newest) {
    for (Step step = StepUpdating(newest); step <= LastStep(newest); step = NextStep(step))
      Begin(step);
  }
  // The version is made: its step's contributions make room for those of one more step.
  void OnMade(Version newest) { Begin(LastStep(newest)); }
  // Returns whether contributions to the step are collected when this version is the newest.
  bool Collects(Step step, Version newest) const {
    return step >= StepUpdating(newest) && step <= LastStep(newest) &&
           step.value() < steps_.step_count();
  }
  // The contributions to a step that is collected.
  Aggregator& At(Step step) { return aggregators_[step.value() % aggregators_.size()]; }
  const Aggregator& At(Step step) const { return aggregators_[step.value() % aggregators_.size()]; }

 private:
  Step LastStep(Version newest) const { return steps_.LastStepToSend(newest); }
  void Begin(Step step) {
    const bool is_past_end = step.value() >= steps_.step_count();
    At(step).Begin(is_past_end ? MicroBatchTree({}) : steps_.Tree(step));
  }

  const StepPlan& steps_;
  std::deque<Aggregator> aggregators_;  // the steps take turns
};

}  // namespace pando
