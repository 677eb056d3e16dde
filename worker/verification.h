// Verification hands out the micro-batches that the view gives to this worker to compute a second
// time, and reports the hashes of all gradients: the scheduler compares the two of each (P41). Used
// by the session. Threads: none.
#pragma once

#include <optional>
#include <set>
#include <utility>

#include "proto/assignment.h"
#include "worker/gradient_reports.h"
#include "worker/parameters.h"
#include "worker/steps.h"

namespace pando {

class Verification : SessionPart {
 public:
  // All outlive it.
  Verification(const SessionPart& part, const Steps& steps, const Parameters& parameters)
      : SessionPart(part), steps_(steps), parameters_(parameters) {}

  void EnterView() { has_new_assignment_ = true; }
  void Forget() {
    reports_.Clear();
    next_.reset();
    handed_out_.clear();
  }
  // Hands out what the view gives us to compute again of the steps that may be sent (P4): once when
  // their parameters are here, and once more in each new view. Reports that there is no hash of
  // steps that others took past us.
  void Advance(Micros now) {
    if (plan_.job.verify_every == 0) return;
    const Step lowest = versions_.lowest_incomplete();
    const Step last = plan_.steps.LastStepToSend(versions_.everywhere());
    if (next_ && *next_ > last && !has_new_assignment_) return;
    ReportSkipped(now, lowest);
    if (!next_ || *next_ < lowest || has_new_assignment_) next_ = lowest;
    std::erase_if(handed_out_, [&](const auto& entry) { return entry.first < lowest; });
    for (; *next_ <= last; next_ = NextStep(*next_)) {
      // Without its parameters there might be no answer: others may go on without us.
      const Steps::Work* work = steps_.Find(*next_);
      if (work == nullptr || !parameters_.HasWhole(plan_.steps.VersionReadBy(*next_))) return;
      has_new_assignment_ = false;
      HandOut(*work);
    }
  }
  void OnGradientHashed(Micros now, const GradientHashed& hashed) {
    reports_.Add(now, {hashed.step, hashed.micro_batch, hashed.hash});
  }
  void OnGradientHashesAck(const GradientHashesAck& ack) { reports_.Acknowledge(ack.below); }

  void Tick(Micros now) {
    if (auto hashes = reports_.TakeDue(now)) member_.SendToScheduler(*std::move(hashes));
  }
  Micros NextDeadline() const { return reports_.NextDeadline(); }

 private:
  // A worker that is further behind took no part in those steps.
  static constexpr uint64_t kSkippedStepsMax = 1024;

  bool IsOurs(Step step, MicroBatch m) const {
    return plan_.IsVerified(step, m) && m.value() < member_.view().owners.size() &&
           FindVerifier(member_.view(), step, m) == member_.self().node;
  }
  void ReportSkipped(Micros now, Step lowest) {
    Step step = next_.value_or(lowest);
    if (step.value() + kSkippedStepsMax < lowest.value()) step = lowest;
    for (; step < lowest; step = NextStep(step)) {
      for (MicroBatch m : plan_.steps.Tree(step).PresentLeaves()) {
        if (IsOurs(step, m)) reports_.Add(now, {step, m, 0});
      }
    }
  }
  void HandOut(const Steps::Work& work) {
    for (MicroBatch m : plan_.steps.Tree(work.step).PresentLeaves()) {
      if (!IsOurs(work.step, m) || work.issued.contains(m)) continue;
      if (handed_out_.insert({work.step, m}).second) compute_.Verify(work.step, m);
    }
  }

  const Steps& steps_;
  const Parameters& parameters_;
  GradientReports reports_;
  std::optional<Step> next_;         // the first step whose verifications are not handed out
  bool has_new_assignment_ = false;  // since then
  std::set<std::pair<Step, MicroBatch>> handed_out_;
};

}  // namespace pando
