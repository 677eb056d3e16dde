// A run's status as the page gets it. Used by RunWatch.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "scheduler/run_status.h"

namespace pando {

// What the page shows of a status, without faults and traffic. "nodes" is an object, by name, and
// times are rounded, so that little differs from one status to the next.
nlohmann::json PageStatus(RunStatus status);

// The members of `to` that differ, as RFC 7396 ("merge patch") writes them: a null removes one.
// REQUIRES: both are objects.
nlohmann::json MergePatch(const nlohmann::json& from, const nlohmann::json& to);

}  // namespace pando
