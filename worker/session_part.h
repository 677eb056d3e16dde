// SessionPart is the base of every part of a session: it has references to what the parts share.
// All of them outlive the part. Threads: none.
#pragma once

#include "plan/job_plan.h"
#include "proto/view_member.h"
#include "train/compute_port.h"
#include "worker/committed_versions.h"
#include "worker/unreplied_gradients.h"

namespace pando {

class SessionPart {
 public:
  SessionPart(const JobPlan& plan, ViewMember& member, CommittedVersions& versions,
              UnrepliedGradients& gradients, ComputePort& compute)
      : plan_(plan),
        member_(member),
        versions_(versions),
        gradients_(gradients),
        compute_(compute) {}

 protected:
  const JobPlan& plan_;
  ViewMember& member_;
  CommittedVersions& versions_;
  UnrepliedGradients& gradients_;
  ComputePort& compute_;
};

}  // namespace pando
