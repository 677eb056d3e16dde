// StepPlan says which samples belong to a step and micro-batch (P2, P2a), which version a step
// reads (P1a), and which steps may be sent (P4). It is a function of the job alone.
#pragma once

#include <algorithm>
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

inline constexpr uint32_t kStalenessMax = 1;

class StepPlan {
 public:
  struct Options {
    uint64_t sample_count = 1;  // training samples
    uint64_t global_batch = 1;
    uint32_t micro_batch_count = 1;  // ≤ global_batch
    LastBatch last_batch = LastBatch::kShort;
    uint64_t step_count = 0;   // length of the job in steps, or 0 to use:
    double epoch_count = 0.0;  // length in epochs, rounded up to a whole step
    uint32_t staleness = 0;    // ≤ kStalenessMax
  };
  explicit StepPlan(Options options);

  uint64_t step_count() const { return step_count_; }
  Version final_version() const { return Version(step_count_); }
  uint64_t steps_per_epoch() const { return steps_per_epoch_; }
  uint64_t Epoch(Step step) const { return step.value() / steps_per_epoch_; }
  uint64_t SampleCount(Step step) const;  // B of this step, ≥ 1
  MicroBatchTree Tree(Step step) const;
  SampleRange Samples(Step step, MicroBatch m) const;

  uint32_t staleness() const { return options_.staleness; }
  // P1a. Returns the version with which the step's gradients are computed.
  Version VersionReadBy(Step step) const {
    return Version(step.value() - std::min<uint64_t>(step.value(), options_.staleness));
  }
  // Returns the last step that reads this version.
  Step LastStepReading(Version version) const { return Step(version.value() + options_.staleness); }
  // P4. Returns the last step of which something may be sent once this version is committed
  // everywhere. Steps up to the one after it are computed.
  Step LastStepToSend(Version everywhere) const { return LastStepReading(everywhere); }
  // P4. Returns the number of versions that a replica keeps; a worker keeps as many.
  uint32_t versions_kept() const { return 2 * options_.staleness + 2; }

  // Returns the samples of the largest micro-batch of any step.
  uint64_t micro_batch_samples_max() const;

 private:
  Options options_;
  uint64_t steps_per_epoch_;
  uint64_t step_count_;
};

}  // namespace pando
