// LanePart: the objects on which every part of a lane works. All of them outlive the part.
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
  // P13: roots and their acknowledgements count only between equal views.
  bool CountsFor(const Envelope& envelope) const { return envelope.view == member_.view().id; }

  ViewMember& member_;
  Replicas& replicas_;
  const JobPlan& plan_;
};

}  // namespace pando
