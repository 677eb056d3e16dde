// LocalUpdate makes the next versions in a process that holds every shard. It does what the lanes
// do with complete sums. Used by the serial trainer, and by every rank of an allreduce group except
// rank 0, whose lane makes its versions.
// Threads: any; one at a time for each shard. Owns: the optimizer's state, the roots that wait.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "common/blob.h"
#include "common/float_buffer.h"
#include "common/timeline/timeline.h"
#include "optim/schedule.h"
#include "optim/version_maker.h"
#include "plan/job_plan.h"
#include "train/parameter_store.h"

namespace pando {

class LocalUpdate {
 public:
  struct Timed {  // both null: no spans are recorded
    Timeline* timeline = nullptr;
    TimelineTrack* track = nullptr;  // of the only thread that calls
  };
  // `plan`, `store` and the timeline outlive it. The state is that of version 0.
  LocalUpdate(const JobPlan& plan, ParameterStore& store, const Timed& timed);

  // The optimizer's state of the newest version, by shard. A resumed run writes it before the first
  // root.
  std::vector<FloatBuffer>& states() { return states_; }
  const Schedule& schedule() const { return schedule_; }
  const VersionMaker& maker() const { return maker_; }

  struct Root {
    Step step;
    ShardId shard;
    Blob gradient;  // a sum over all samples of the step, unscaled
  };
  // A shard of version step + 1 is in `next`, a flat vector of the store. The store's Arrived is
  // not called yet.
  using OnMade = std::function<void(Step step, ShardId shard, const SharedBuffer& next)>;
  // Makes the shard's next version. If an update needs values over several shards (P14), the root
  // waits for them. The root that brings the last value makes every shard that waited for it.
  void Apply(Root root, const OnMade& on_made);

 private:
  struct Waiting {
    std::map<ShardId, Root> roots;
    std::map<ShardId, std::vector<float>> partials;
    PartialTotal total;  // of these
  };
  struct Ready {
    Root root;
    std::vector<float> partials;
    std::vector<float> factors;
  };
  TimelineTrack::Span StartSpan(TimelineNameId name, const Root& root) const;
  VersionMaker::Inputs InputsFor(const Root& root, const FloatBuffer& values) const;
  std::vector<float> MakePartials(const Root& root) const;
  std::vector<Ready> Await(Root root, std::vector<float> partials);
  void Make(const Ready& ready, const OnMade& on_made);

  const JobPlan& plan_;
  ParameterStore& store_;
  const Schedule schedule_;
  const VersionMaker maker_;
  const Timed timed_;
  TimelineNameId update_name_, partials_name_;
  std::vector<FloatBuffer> states_;
  std::mutex mutex_;  // guards:
  std::map<Step, Waiting> waiting_;
};

}  // namespace pando
