// Converts a run's status to the form for the page. RunWatch uses it.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "scheduler/run_status.h"

namespace pando {

// Returns the parts of a status that the page shows, without faults and traffic. "nodes" is an
// object, by name, and times are rounded, so that successive statuses differ little.
nlohmann::json PageStatus(RunStatus status);

// Returns the members of `to` that differ from `from`, as an RFC 7396 "merge patch": a null removes
// a member. REQUIRES: both are objects.
nlohmann::json MergePatch(const nlohmann::json& from, const nlohmann::json& to);

}  // namespace pando
