// SchedulerPlace is one of a run's schedulers: the one that leads, or a standby (P47).
#pragma once

#include <string>
#include <vector>

#include "proto/named_fields.h"

namespace pando {

struct SchedulerPlace {
  std::string endpoint;
  std::string state;  // "leads", "may lead", or "gets the run folder"
};
void Visit(auto io, SchedulerPlace& m) { io(PANDO_FIELD(m.endpoint), PANDO_FIELD(m.state)); }

inline std::vector<std::string> EndpointsFor(const std::vector<SchedulerPlace>& places) {
  std::vector<std::string> endpoints;
  for (const SchedulerPlace& place : places) endpoints.push_back(place.endpoint);
  return endpoints;
}

}  // namespace pando
