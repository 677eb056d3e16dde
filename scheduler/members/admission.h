// Admission: which processes may join the run. Pure functions, called by RunMembers.
#pragma once

#include <cstdint>
#include <string>

#include "plan/job_plan.h"
#include "scheduler/members/member.h"
#include "scheduler/run_phase.h"

namespace pando {

// What a registration is compared with.
struct AdmissionState {
  const Job& job;
  const Members& members;
  const RunPhase& phase;
  uint32_t next_node = 1;  // of all lives, dead members included
};

// Why the process cannot join, for people; empty if it can.
std::string ReasonToRefuse(const Register& registration, const AdmissionState& state);

}  // namespace pando
