// A message of any type with random fields, each within the limits of the wire: near what a
// simulated run has reached, so that a process that believes it goes wrong, or far from it. Used by
// HostilePeer.
#pragma once

#include <cstddef>
#include <vector>

#include "plan/job_plan.h"
#include "proto/messages.h"
#include "tests/sim/network.h"
#include "tests/sim/world.h"

namespace pando::sim {

// From where hostile processes send.
inline constexpr Place kHostilePlace = UINT32_MAX;

// The sender's knowledge of the run.
struct RunKnowledge {
  const JobPlan& plan;
  ViewId view;
  uint32_t generation = 0;
  Version committed;
  std::vector<PeerId> peers;
};

// `kind`: the message's index in the variant. Some do not decode: their fields do not fit together.
Message RandomMessage(Chance& chance, const RunKnowledge& run, size_t kind);

// The view's id, or the one after it, or any.
ViewId RandomView(Chance& chance, const RunKnowledge& run);
uint32_t RandomGeneration(Chance& chance, const RunKnowledge& run);

}  // namespace pando::sim
