// StepPlan says which samples belong to which step and micro-batch (P2, P2a). It is a pure function
// of the job. Server, worker, scheduler and the serial trainer use it, so they agree.
#pragma once

#include <cstdint>

#include "common/ids.h"
#include "common/text.h"
#include "plan/micro_batch_tree.h"

namespace pando {

enum class LastBatch { kShort, kDrop };  // the last batch of an epoch, if the data do not fill it
template <>
inline constexpr auto kEnumNames<LastBatch> = std::to_array({"short", "drop"});

struct SampleRange {  // [first, last), positions within the epoch's permutation
  uint64_t first = 0;
  uint64_t last = 0;
  uint64_t count() const { return last - first; }
};

class StepPlan {
 public:
  struct Options {
    uint64_t sample_count = 1;  // training samples
    uint64_t global_batch = 1;
    uint32_t micro_batch_count = 1;  // ≤ global_batch
    LastBatch last_batch = LastBatch::kShort;
    uint64_t step_count = 0;   // length of the job in steps, or 0 to use:
    double epoch_count = 0.0;  // length in epochs, rounded up to a whole step
  };
  explicit StepPlan(Options options);

  uint64_t step_count() const { return step_count_; }
  Version final_version() const { return Version(step_count_); }
  uint64_t steps_per_epoch() const { return steps_per_epoch_; }
  uint64_t Epoch(Step step) const { return step.value() / steps_per_epoch_; }
  uint64_t SampleCount(Step step) const;  // B of this step, ≥ 1
  MicroBatchTree Tree(Step step) const;
  SampleRange Samples(Step step, MicroBatch m) const;
  // Returns the samples of the largest micro-batch of any step.
  uint64_t micro_batch_samples_max() const;

 private:
  Options options_;
  uint64_t steps_per_epoch_;
  uint64_t step_count_;
};

}  // namespace pando
