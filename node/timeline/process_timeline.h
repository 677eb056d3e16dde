// The file of a process's record of itself in RUN_DIR/timeline, which it keeps if the job asks for
// a timeline. MemberTimeline and the processes without members use it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/timeline/timeline.h"
#include "plan/job.h"

namespace pando {

// Returns null if the job asks for no timeline. Also returns null, with a warning, if the file
// cannot be created, since the run does not depend on it. `folder` is RunFolder::TimelinePath of
// the run's folder on this machine.
std::unique_ptr<Timeline> OpenTimeline(const Job& job, const std::string& folder,
                                       const std::string& process, uint64_t incarnation);
// Warns, when the process is done, if the file could not hold all records.
void WarnOfLost(const Timeline* timeline);

}  // namespace pando
