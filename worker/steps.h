// Steps: which steps are handed to compute, and with which of their micro-batches. At most two are
// in the works: the lowest incomplete step t, and t + 1, whose forward waits layer by layer for
// version t + 1. If something of step t is missing, it is computed even after t + 1 has begun (P12,
// P17). Used by the session. Threads: none.
#pragma once

#include <deque>
#include <set>
#include <vector>

#include "plan/job_plan.h"
#include "proto/view_member.h"
#include "train/compute_port.h"
#include "worker/committed_versions.h"
#include "worker/shard_answers.h"

namespace pando {

// Acts on the news at once.
class WorkListener {
 public:
  virtual ~WorkListener() = default;
  // The step is in the works from now on: its parameters are needed.
  virtual void OnStepBegun(Step step) = 0;
  // What compute made of these steps does not count; it may be computed again.
  virtual void OnStepsAbandoned(Step from) = 0;
};

class Steps {
 public:
  static constexpr size_t kWorksMax = 2;

  struct Work {  // a step handed to compute
    Step step;
    std::set<MicroBatch> issued;  // to be pushed
    uint32_t open_calls = 0;      // Compute calls whose StepComputed is not back
  };

  // All outlive it.
  Steps(const JobPlan& plan, const ViewMember& member, const CommittedVersions& versions,
        ComputePort& compute, WorkListener& listener)
      : plan_(plan), member_(member), versions_(versions), compute_(compute), listener_(listener) {}

  // All primaries have answered in this view: begins, or computes what is missing of our part.
  void OnAnswered(const ShardAnswers& answers);
  // Steps that are committed are dropped, and the next ones are handed to compute.
  void Advance();
  void OnStepComputed(Micros now, const StepComputed& done);
  void OnParams(Micros now) { waiting_since_ = now; }
  // Computes these micro-batches of another worker, of the lowest incomplete step.
  void Help(Step step, std::vector<MicroBatch> micro_batches);
  void Forget();

  // The first questions have been answered.
  bool has_started() const { return has_started_; }
  const std::deque<Work>& works() const { return works_; }  // ascending
  const Work* Find(Step step) const;                        // null: it is not in the works
  // Whether nothing more is to come of this step from compute.
  bool IsComputed(Step step) const;
  bool IsIssued(Step step, MicroBatch m) const;
  // How many sums of each shard compute has been asked for.
  size_t GradientsOfEachShard(Step step) const;
  // Since when this worker has had nothing to do but wait, where it waits.
  Micros waiting_since() const { return waiting_since_; }

 private:
  void DropCommitted();
  bool IsAssignedFrom(Step step) const;
  std::vector<MicroBatch> Assigned(Step step) const;
  std::vector<MicroBatch> Missing(Step step, const ShardAnswers& answers) const;
  void ComputeMissing(Step step, std::vector<MicroBatch> missing);
  void ExtendLaterWork(Step lowest);
  void Issue(Step step, std::vector<MicroBatch> micro_batches);
  Work* Find(Step step);

  const JobPlan& plan_;
  const ViewMember& member_;
  const CommittedVersions& versions_;
  ComputePort& compute_;
  WorkListener& listener_;
  std::deque<Work> works_;  // ascending steps, at most kWorksMax
  Step next_;               // the next step to hand to compute
  bool has_started_ = false;
  Micros waiting_since_{0};
};

}  // namespace pando
