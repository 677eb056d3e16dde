#include "plan/step_plan.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace pando {

StepPlan::StepPlan(Options options) : options_(options) {
  PANDO_CHECK(options.sample_count >= 1 && options.micro_batch_count >= 1);
  PANDO_CHECK(options.micro_batch_count <= options.global_batch);
  PANDO_CHECK(options.staleness <= kStalenessMax);
  uint64_t whole = options.sample_count / options.global_batch;
  bool has_short = options.sample_count % options.global_batch != 0;
  bool keep_short = has_short && (options.last_batch == LastBatch::kShort || whole == 0);
  steps_per_epoch_ = whole + (keep_short ? 1 : 0);
  double epoch_steps = std::ceil(options.epoch_count * static_cast<double>(steps_per_epoch_));
  step_count_ = options.step_count != 0 ? options.step_count : static_cast<uint64_t>(epoch_steps);
}

uint64_t StepPlan::SampleCount(Step step) const {
  uint64_t first = step.value() % steps_per_epoch_ * options_.global_batch;
  return std::min(options_.global_batch, options_.sample_count - first);
}

MicroBatchTree StepPlan::Tree(Step step) const {
  return MicroBatchTree(
      {.micro_batch_count = options_.micro_batch_count, .sample_count = SampleCount(step)});
}

SampleRange StepPlan::Samples(Step step, MicroBatch m) const {
  PANDO_CHECK(m.value() < options_.micro_batch_count);
  uint64_t base = step.value() % steps_per_epoch_ * options_.global_batch;
  uint64_t batch = SampleCount(step);
  uint64_t n = options_.micro_batch_count;
  return {base + m.value() * batch / n, base + (m.value() + 1) * batch / n};
}

uint64_t StepPlan::micro_batch_samples_max() const {
  uint64_t batch = std::min(options_.global_batch, options_.sample_count);
  return (batch + options_.micro_batch_count - 1) / options_.micro_batch_count;
}

}  // namespace pando
