// ErrorFeedback encodes gradients with codecs that lose much, and adds the loss of each micro-batch
// to its next gradient (P34; Seide et al. 2014, equations 2 and 3). A loss belongs to (micro-batch,
// shard) and counts for one step: it is zero if another worker had the micro-batch in between, and
// if a step is computed again. Used by micro_batch_pass.
// Threads: any. Owns: a vector of the model's size for each micro-batch of the newest two steps.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "common/float_buffer.h"
#include "common/ids.h"
#include "plan/job_plan.h"

namespace pando {

class ErrorFeedback {
 public:
  explicit ErrorFeedback(const JobPlan& plan) : plan_(plan) {}  // `plan` outlives it

  // REQUIRES: the gradient has the shard's size, and `encoded` the size that plan.pushes say.
  void Encode(Step step, MicroBatch m, ShardId shard, std::span<const float> gradient,
              std::span<std::byte> encoded);
  // Steps may begin again at a lower one (P21).
  void Forget();
  size_t held_count();  // vectors of the model's size

 private:
  struct Lost {
    explicit Lost(const JobPlan& plan)
        : floats(plan.layout.float_count()), of_step(plan.shards.shard_count()) {}
    std::mutex mutex;  // guards:
    FloatBuffer floats;
    std::vector<std::optional<Step>> of_step;  // by shard: the step whose loss it is
    std::vector<float> sent;                   // scratch
  };
  struct Entry {
    std::shared_ptr<Lost> lost;  // shared with a thread that still uses it when it is erased
    Step newest;
  };
  std::shared_ptr<Lost> Find(Step step, MicroBatch m);

  const JobPlan& plan_;
  std::mutex mutex_;  // guards:
  std::map<MicroBatch, Entry> lost_;
};

}  // namespace pando
