// The pushes, roots and replies of one step over the links of workers and servers, shard by shard.
// Called by step_time.
#pragma once

#include <vector>

#include "plan/step_time.h"

namespace pando {

struct ExchangeTimes {
  std::vector<double> arrivals_ms;  // when the last worker has each shard's new version
  double busiest_link_ms = 0;       // the load of the busiest direction of a link in a step
};
// ready_ms: for each contribution, when each of its shards may leave.
ExchangeTimes SimulateServers(const StepWork& work, const Cluster& cluster, ServerPlace place,
                              const std::vector<std::vector<double>>& ready_ms);

}  // namespace pando
