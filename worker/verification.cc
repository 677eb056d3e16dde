#include "worker/verification.h"

#include <utility>

#include "proto/assignment.h"

namespace pando {

void Verification::Forget() {
  reports_.Clear();
  next_.reset();
  handed_out_.clear();
}

void Verification::OnGradientHashed(Micros now, const GradientHashed& hashed) {
  reports_.Add(now, {hashed.step, hashed.micro_batch, hashed.hash});
}

bool Verification::IsOurs(Step step, MicroBatch m) const {
  return plan_.IsVerified(step, m) && m.value() < member_.view().owners.size() &&
         FindVerifier(member_.view(), step, m) == member_.self().node;
}

void Verification::Advance(Micros now) {
  if (plan_.job.verify_every == 0) return;
  const Step lowest = versions_.lowest_incomplete();
  if (next_ == NextStep(lowest) && !has_new_assignment_) return;
  ReportSkipped(now, lowest);
  next_ = lowest;
  // Without its parameters there might be no answer: others may go on without us.
  const Steps::Work* work = steps_.Find(lowest);
  if (work == nullptr || !parameters_.HasWhole(VersionReadBy(lowest))) return;
  next_ = NextStep(lowest);
  has_new_assignment_ = false;
  HandOut(*work);
}

void Verification::ReportSkipped(Micros now, Step lowest) {
  Step step = next_.value_or(lowest);
  if (step.value() + kSkippedStepsMax < lowest.value()) step = lowest;
  for (; step < lowest; step = NextStep(step)) {
    for (MicroBatch m : plan_.steps.Tree(step).PresentLeaves()) {
      if (IsOurs(step, m)) reports_.Add(now, {step, m, 0});
    }
  }
}

void Verification::HandOut(const Steps::Work& work) {
  if (std::exchange(step_, work.step) != work.step) handed_out_.clear();
  for (MicroBatch m : plan_.steps.Tree(work.step).PresentLeaves()) {
    if (!IsOurs(work.step, m) || work.issued.contains(m)) continue;
    if (handed_out_.insert(m).second) compute_.Verify(work.step, m);
  }
}

void Verification::Tick(Micros now) {
  if (auto hashes = reports_.TakeDue(now)) member_.SendToScheduler(*std::move(hashes));
}

}  // namespace pando
