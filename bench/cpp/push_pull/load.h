// Load is how much is pushed and pulled, and by how many processes. MakePlan plans such a job.
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
  bool has_barrier = false;    // P4, as a training worker; otherwise each shard goes on separately
  bool shares_memory = false;  // payloads are read in place (P42)
  bool copies = false;         // parameters are copied out of the received frames, as a worker does
};

// The amount that a step adds to each parameter without momentum: every worker pushes ones, and the
// update subtracts their mean.
inline constexpr float kAddedPerStep = -1.0f;

// Plans shards of exactly shard_bytes, one micro-batch and sample per worker, and SGD. The job has
// no end that could be reached, no evaluation, and no snapshot before its end.
JobPlan MakePlan(const Load& load);

}  // namespace pando::bench
