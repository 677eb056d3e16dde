// A run's status as the viewer takes it from the scheduler, and what the page gets of it. Used by
// RunWatch, RunMetrics and ActivityStrips.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace pando {

// The members that the viewer knows, as `pando status --json` prints them. Those that have another
// type than expected are left out: the status comes from another process, maybe of another version.
// "nodes" and "faults" are arrays of objects. Null if the text is no status.
nlohmann::json ReadStatus(std::string_view text);

// What the page shows of such a status, without faults and traffic. "nodes" is an object, by name,
// and times are rounded, so that little differs from one status to the next.
nlohmann::json PageStatus(const nlohmann::json& status);

// The members of `to` that differ, as RFC 7396 ("merge patch") writes them: a null removes one.
// REQUIRES: both are objects.
nlohmann::json MergePatch(const nlohmann::json& from, const nlohmann::json& to);

}  // namespace pando
