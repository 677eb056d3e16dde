// LanePart has the objects that every part of a lane works on. All of them outlive the part.
#pragma once

#include "plan/job_plan.h"
#include "proto/view_member.h"
#include "server/replicas.h"

namespace pando {

class LanePart {
 public:
  LanePart(ViewMember& member, Replicas& replicas, const JobPlan& plan)
      : member_(member), replicas_(replicas), plan_(plan) {}

 protected:
  // P13. Returns whether a root or its acknowledgement counts: only if it has this lane's view.
  bool CountsFor(const Envelope& envelope) const { return envelope.view == member_.view().id; }

  ViewMember& member_;
  Replicas& replicas_;
  const JobPlan& plan_;
};

}  // namespace pando
