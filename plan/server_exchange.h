// ExchangeWithServers simulates how one step's gradients get to the servers and the parameters
// back: the links, and the processors that handle the messages. step_time calls it.
#pragma once

#include <vector>

#include "plan/step_time.h"

namespace pando {

// Returns the load of the busiest direction of a link in a step, at full speed.
double BusiestLinkMs(const StepWork& work, const Cluster& cluster, ServerPlace place);

// `ready_ms` has, for each contribution, when each of its shards may leave. Returns when the last
// worker has each shard's new version.
std::vector<double> ExchangeWithServers(const StepWork& work, const Cluster& cluster,
                                        ServerPlace place,
                                        const std::vector<std::vector<double>>& ready_ms);

}  // namespace pando
