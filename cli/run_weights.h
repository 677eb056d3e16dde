// The weights that a run left: its final ones or a snapshot's. Used by `pando export`, `evaluate`
// and `verify`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/run_folder.h"
#include "cli/snapshot_folder.h"
#include "common/float_buffer.h"
#include "common/job_plan.h"
#include "common/status.h"

namespace pando {

// The job of a run folder; `data_path`, where not empty, replaces the job's.
Result<Job> JobOfRun(const RunFolder& folder, const std::string& data_path);

struct RunWeights {
  std::string name;  // "final weights", "snapshot g000-v000000500"
  Version version;
  FloatBuffer flat;
};
// Of version `step`; without one, the final weights, or the newest snapshot of a run that has none.
Result<RunWeights> ReadRunWeights(const RunFolder& folder, const JobPlan& plan,
                                  std::optional<uint64_t> step);

// The snapshot of version `step`, of the newest generation that has one; without one, the newest.
// kNotFound says which steps there are.
Result<SnapshotManifest> ChooseSnapshot(const RunFolder& folder, std::optional<uint64_t> step);
// The newest snapshot before it; none where that is version 0, which follows from the seed.
Result<std::optional<SnapshotManifest>> SnapshotBefore(const RunFolder& folder, Version version);

}  // namespace pando
