// Steps decides which steps are handed to compute, and with which of their micro-batches. It
// follows the lowest incomplete step t, the steps after it that may be sent (P4), and one more. The
// forward of the last one waits, layer by layer, for version t + 1. If shards lack micro-batches of
// a step that has begun, Steps computes them (P12, P17). The session uses it. Threads: none.
#pragma once

#include <algorithm>
#include <deque>
#include <set>
#include <vector>

#include "proto/assignment.h"
#include "worker/session_part.h"

namespace pando {

class Steps : SessionPart {
 public:
  struct Work {  // a step handed to compute
    Step step;
    std::set<MicroBatch> issued;  // those whose gradients are to be pushed
    uint32_t open_calls = 0;      // Compute calls whose StepComputed has not come back
  };

  // `listener` outlives it.
  Steps(const SessionPart& part, SessionListener& listener)
      : SessionPart(part), listener_(listener) {}

  // Is called when all primaries have answered: begins, or computes the missing part of our work.
  void OnAnswered(const ShardAnswers& answers);
  // Drops the steps that are committed, and hands the next ones to compute.
  void Advance();
  void OnStepComputed(Micros now, const StepComputed& done) {
    if (Work* work = Find(done.step); work != nullptr && work->open_calls > 0) --work->open_calls;
    ++change_count_;
    waiting_since_ = now;
  }
  void OnParams(Micros now) { waiting_since_ = now; }
  // Computes these micro-batches of another worker, in the lowest incomplete step.
  void Help(Step step, std::vector<MicroBatch> micro_batches) {
    ComputeMissing(step, std::move(micro_batches));
    next_ = std::max(next_, NextStep(step));
  }
  void Forget() {
    works_.clear();
    next_ = Step(0);
    has_started_ = false;
    ++change_count_;
  }

  // The first questions have been answered.
  bool has_started() const { return has_started_; }
  const std::deque<Work>& works() const { return works_; }  // ascending
  // Counts the changes of the two above, so that a part can do something after each of them alone.
  uint64_t change_count() const { return change_count_; }
  const Work* Find(Step step) const;  // null: it is not in the works
  // Returns whether compute needs this version for a step in the works, or, if the shard is ahead
  // of others as far as P4 allows, for a later one.
  bool MayRead(Version version) const {
    if (works_.empty()) return false;
    const Version newest = VersionMadeBy(plan_.steps.LastStepToSend(versions_.everywhere()));
    const Version last_read = plan_.steps.VersionReadBy(works_.back().step);
    if (version > last_read) return version <= newest && plan_.steps.staleness() > 0;
    return std::ranges::any_of(
        works_, [&](const Work& work) { return plan_.steps.VersionReadBy(work.step) == version; });
  }
  // Returns whether compute is busy with a step that waits for no version.
  bool IsComputing() const {
    const Step last = plan_.steps.LastStepToSend(versions_.everywhere());
    return std::ranges::any_of(
        works_, [&](const Work& work) { return work.open_calls > 0 && work.step <= last; });
  }
  // Returns whether compute has finished its part of this step.
  bool IsComputed(Step step) const {
    const Work* work = Find(step);
    return work == nullptr || work->open_calls == 0;
  }
  bool IsIssued(Step step, MicroBatch m) const {
    const Work* work = Find(step);
    return work != nullptr && work->issued.contains(m);
  }
  // Since when this worker has only been waiting, if it waits.
  Micros waiting_since() const { return waiting_since_; }

 private:
  void DropCommitted();
  bool IsAssignedFrom(Step step) const;
  std::vector<MicroBatch> Assigned(Step step) const {
    return AssignedTo(member_.view(), member_.self().node, step, plan_.steps.Tree(step));
  }
  size_t works_max() const { return plan_.steps.staleness() + 2; }
  std::vector<MicroBatch> Missing(Step step, const ShardAnswers& answers) const;
  void ComputeMissing(Step step, std::vector<MicroBatch> missing);
  void ExtendLaterWork(Step lowest, const ShardAnswers& answers);
  void Issue(Step step, std::vector<MicroBatch> micro_batches);
  Work* Find(Step step);

  SessionListener& listener_;
  std::deque<Work> works_;  // ascending steps, at most works_max()
  Step next_;               // the next step to hand to compute
  bool has_started_ = false;
  Micros waiting_since_{0};
  uint64_t change_count_ = 0;
};

}  // namespace pando
