#include "worker/steps.h"

#include <algorithm>
#include <utility>

namespace pando {

const Steps::Work* Steps::Find(Step step) const {
  const auto it = std::ranges::find(works_, step, &Work::step);
  return it == works_.end() ? nullptr : &*it;
}

Steps::Work* Steps::Find(Step step) { return const_cast<Work*>(std::as_const(*this).Find(step)); }

void Steps::Advance() {
  if (!has_started_) return;
  DropCommitted();
  const Step last = NextStep(plan_.steps.LastStepToSend(versions_.everywhere()));
  while (next_.value() < plan_.steps.step_count() && works_.size() < works_max()) {
    if (next_ > last || !IsAssignedFrom(next_)) break;
    Issue(next_, Assigned(next_));
    next_ = NextStep(next_);
  }
}

// A committed step is done, by us or by others. If compute still works on it, the result is not
// needed, and its parameters are about to be overwritten.
void Steps::DropCommitted() {
  const Step lowest = versions_.lowest_incomplete();
  while (!works_.empty() && works_.front().step < lowest) {
    const Work& work = works_.front();
    ++change_count_;
    if (work.open_calls > 0) {
      const Step from = work.step;
      compute_.Abandon(from);
      works_.clear();
      next_ = lowest;
      return listener_.OnStepsAbandoned(from);
    }
    works_.pop_front();
  }
  next_ = std::max(next_, lowest);
}

// Whether any micro-batch of this step or a later one is ours to compute.
bool Steps::IsAssignedFrom(Step step) const {
  const NodeId self = member_.self().node;
  return std::ranges::any_of(member_.view().owners, [&](const MicroBatchOwner& owner) {
    return owner.worker == self || (owner.previous == self && owner.first_step > step);
  });
}

void Steps::Issue(Step step, std::vector<MicroBatch> micro_batches) {
  ++change_count_;
  Work* work = Find(step);
  if (work == nullptr) {
    work = &works_.emplace_back(Work{.step = step});
    listener_.OnStepBegun(step);
  }
  if (micro_batches.empty())
    return;  // a short batch has none for us, but the step must be followed
  work->issued.insert(micro_batches.begin(), micro_batches.end());
  ++work->open_calls;
  compute_.Compute(step, std::move(micro_batches));
}

void Steps::OnAnswered(const ShardAnswers& answers) {
  const Step lowest = versions_.lowest_incomplete();
  ++change_count_;
  if (!has_started_) {
    has_started_ = true;
    next_ = lowest;
  } else if (Find(lowest) != nullptr) {
    std::vector<MicroBatch> missing = Missing(lowest, answers);
    if (!missing.empty()) ComputeMissing(lowest, std::move(missing));
    ExtendLaterWork(lowest, answers);
  }
}

// Our micro-batches of this step that some shard lacks and that compute does not have.
std::vector<MicroBatch> Steps::Missing(Step step, const ShardAnswers& answers) const {
  const bool is_behind = answers.IsBehind(step, plan_.steps);
  std::vector<MicroBatch> missing = Assigned(step);
  std::erase_if(missing, [&](MicroBatch m) {
    return (!is_behind && !answers.IsMissing(m, step, plan_.steps)) || IsIssued(step, m);
  });
  return missing;
}

// P12. Computes these micro-batches of the lowest incomplete step. The forward that waits for the
// version that they make is interrupted; steps that wait for no version go on.
void Steps::ComputeMissing(Step step, std::vector<MicroBatch> missing) {
  const Step waiting = NextStep(plan_.steps.LastStepToSend(VersionUpdatedBy(step)));
  if (!works_.empty() && works_.back().step >= waiting) {
    compute_.Abandon(waiting);
    std::erase_if(works_, [&](const Work& work) { return work.step >= waiting; });
    ++change_count_;
    next_ = waiting;
    listener_.OnStepsAbandoned(waiting);
  }
  Issue(step, std::move(missing));
}

// Computes micro-batches that this view adds to steps which were handed to compute under an older
// one, except those that every shard has.
void Steps::ExtendLaterWork(Step lowest, const ShardAnswers& answers) {
  for (const Work& work : works_) {
    if (work.step <= lowest) continue;
    std::vector<MicroBatch> added = Missing(work.step, answers);
    if (!added.empty()) Issue(work.step, std::move(added));
  }
}

}  // namespace pando
