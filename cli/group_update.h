// GroupUpdate makes the next version where there are no servers: what shards do with a complete
// sum, done by every worker for itself (run.strategy "allreduce"). The optimizer and the schedule
// are the servers' and the scheduler's own, so the bits are too. Used by GroupWorker on all ranks
// but 0, whose lane makes its versions. Threads: one at a time. Owns: the optimizer's state.
#pragma once

#include <span>
#include <vector>

#include "common/float_buffer.h"
#include "common/job_plan.h"
#include "common/timeline.h"
#include "scheduler/schedule.h"
#include "server/partials.h"
#include "worker/allreduce/gradient_exchange.h"
#include "worker/parameter_store.h"

namespace pando {

class GroupUpdate {
 public:
  struct Timed {  // both null: nothing is noted
    Timeline* timeline = nullptr;
    TimelineTrack* track = nullptr;  // of the thread that calls
  };
  // `plan`, `store` and what is timed outlive it. The state is that of version 0.
  GroupUpdate(const JobPlan& plan, ParameterStore& store, const Timed& timed);

  // By shard; a resumed run's come from rank 0.
  std::vector<FloatBuffer>& states() { return states_; }

  // Makes what can be made of these sums, which are the step's next ones: shards of the next
  // version in the store. Where an update needs values over several shards (P14), all wait for the
  // last one. Returns those that were made.
  std::vector<ShardId> Apply(const GradientExchange::Sums& sums);

 private:
  TimelineSpan SpanOf(TimelineNameId name, Step step, ShardId shard) const;
  Optimizer::Update UpdateOf(Step step, ShardId shard, const FloatBuffer& values,
                             const FloatBuffer& gradients) const;
  void MakePartials(Step step, ShardId shard, const FloatBuffer& gradients);
  void Make(Step step, ShardId shard, const FloatBuffer& gradients, std::span<const float> factors);

  const JobPlan& plan_;
  ParameterStore& store_;
  const Schedule schedule_;
  const Optimizer optimizer_;
  const PartialPlan partial_plan_;
  const Timed timed_;
  TimelineNameId update_name_, partials_name_;
  std::vector<FloatBuffer> states_;
  std::vector<std::vector<float>> partials_;  // by shard, of the step in the making
};

}  // namespace pando
