// Load: what is pushed and pulled, and by how many; and the plan that a job of that shape has.
#pragma once

#include <cstdint>

#include "plan/job_plan.h"

namespace pando::bench {

struct Load {
  uint64_t shard_bytes = 1 << 20;  // a multiple of 64
  uint32_t shards_per_server = 8;  // all of them are in flight at once
  uint32_t servers = 1;
  uint32_t workers = 1;
  bool has_momentum = false;
  bool has_barrier = false;    // P4, as a training worker; else each shard goes on by itself
  bool shares_memory = false;  // payloads are read where they lie (P42)
  bool copies = false;         // parameters are copied out of the received frames, as a worker does
};

// What a step adds to each parameter where there is no momentum: every worker pushes ones, the
// update takes their mean away.
inline constexpr float kAddedPerStep = -1.0f;

// Shards of exactly shard_bytes; one micro-batch and sample for each worker; SGD. It has no end
// that could be reached, no evaluation and no snapshot before it.
JobPlan MakePlan(const Load& load);

}  // namespace pando::bench
