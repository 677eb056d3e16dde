// The weights that a run left: its final ones or a snapshot's. Used by `pando export`, `evaluate`
// and `verify`.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "common/float_buffer.h"
#include "common/status.h"
#include "plan/job_plan.h"
#include "run/run_folder.h"
#include "run/safetensors_file.h"
#include "run/snapshot_folder.h"

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
// The average of the weights (optimizer.ema_decay) at version `step`; without one, at the newest
// snapshot, which a completed run has of its end.
Result<RunWeights> ReadAveragedWeights(const RunFolder& folder, const JobPlan& plan,
                                       std::optional<uint64_t> step);

// What the files of a run's weights say of themselves: step, model, data set, and how a sample
// becomes an input (docs/data.md).
SafetensorsMetadata WeightsMetadata(const JobPlan& plan, Version version);

// What the run kept as its best (snapshot.best).  kNotFound says that it did not, or has not ended.
Result<RunWeights> ReadBestWeights(const RunFolder& folder, const JobPlan& plan);
// Of a run that ends with `final_version`, which its summary does not say yet: writes its best
// version's weights to their file. Of evaluated versions whose snapshot could not be stored, or
// cannot be read, the next best counts.  Returns which it was; none if no version was evaluated.
Result<std::optional<Version>> WriteBestWeights(const RunFolder& folder, const JobPlan& plan,
                                                std::span<const EvaluationSummary> evaluations,
                                                Version final_version);

// The snapshot of version `step`, of the newest generation that has one; without one, the newest.
// kNotFound says which steps there are.
Result<SnapshotManifest> ChooseSnapshot(const RunFolder& folder, std::optional<uint64_t> step);
// The newest snapshot before it; none where that is version 0, which follows from the seed.
Result<std::optional<SnapshotManifest>> SnapshotBefore(const RunFolder& folder, Version version);

}  // namespace pando
