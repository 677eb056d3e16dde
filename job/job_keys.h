// The one table of the job file's keys. It drives parsing, --set, the flags of `pando train`, the
// resolved job.toml and docs/job-file.md, so that none of them can forget a key.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "job/job_key.h"

namespace pando {

// Every key, in the order of the file; the keys of a section stand together.
const std::vector<JobKey>& JobKeys();
// The key so named, or null.
const JobKey* FindJobKey(std::string_view name);
// "did you mean 'optimizer.lr'?" for a key that does not exist, or empty if nothing is near.
std::string SuggestJobKey(std::string_view wrong);

}  // namespace pando
