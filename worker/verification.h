// Verification: some micro-batches are computed by two workers, and the scheduler compares the
// hashes of their gradients (P41). Hands out those that the view gives to this worker, and reports
// all hashes. Used by the session. Threads: none.
#pragma once

#include <optional>
#include <set>

#include "plan/job_plan.h"
#include "proto/view_member.h"
#include "train/compute_port.h"
#include "worker/committed_versions.h"
#include "worker/gradient_reports.h"
#include "worker/parameters.h"
#include "worker/steps.h"

namespace pando {

class Verification {
 public:
  // All outlive it.
  Verification(const JobPlan& plan, ViewMember& member, const CommittedVersions& versions,
               const Steps& steps, const Parameters& parameters, ComputePort& compute)
      : plan_(plan),
        member_(member),
        versions_(versions),
        steps_(steps),
        parameters_(parameters),
        compute_(compute) {}

  void EnterView() { has_new_assignment_ = true; }
  void Forget();
  // Hands out what the view gives us to compute again of the lowest incomplete step: once when its
  // parameters are here, and once more in each new view. Reports that there is no hash of steps
  // that others took past us.
  void Advance(Micros now);
  void OnGradientHashed(Micros now, const GradientHashed& hashed);
  void OnGradientHashesAck(const GradientHashesAck& ack) { reports_.Acknowledge(ack.below); }

  void Tick(Micros now);
  Micros NextDeadline() const { return reports_.NextDeadline(); }

 private:
  // A worker that is further behind took no part in those steps.
  static constexpr uint64_t kSkippedStepsMax = 1024;

  bool IsOurs(Step step, MicroBatch m) const;
  void ReportSkipped(Micros now, Step lowest);
  void HandOut(const Steps::Work& work);

  const JobPlan& plan_;
  ViewMember& member_;
  const CommittedVersions& versions_;
  const Steps& steps_;
  const Parameters& parameters_;
  ComputePort& compute_;
  GradientReports reports_;
  std::optional<Step> next_;         // the first step whose verifications are not handed out
  bool has_new_assignment_ = false;  // since then
  Step step_;                        // the last one of which some were handed out
  std::set<MicroBatch> handed_out_;  // of step_
};

}  // namespace pando
