// ExchangeWithServers simulates how one step's gradients get to the servers and the parameters
// back: the links, and the processors that handle the messages. step_time calls it.
#pragma once

#include <vector>

#include "plan/step_time.h"

namespace pando {

struct Exchange {
  std::vector<double> arrivals_ms;  // when the last worker has each shard's new version
  double link_ms = 0;               // load of a link's busiest direction, at full speed
};

// `ready_ms` has, for each contribution, when each of its shards may leave.
Exchange ExchangeWithServers(const StepWork& work, const Cluster& cluster, ServerPlace place,
                             const std::vector<std::vector<double>>& ready_ms);

}  // namespace pando
