// Reads the weights that a run left: its final ones or a snapshot's. `pando export`, `evaluate` and
// `verify` use it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "common/float_buffer.h"
#include "common/result.h"
#include "plan/job_plan.h"
#include "run/run_folder.h"
#include "run/safetensors_file.h"
#include "run/snapshot_folder.h"

namespace pando {

// Reads the job of a run folder; `data_path`, if not empty, replaces the job's.
Result<Job> JobOfRun(const RunFolder& folder, const std::string& data_path);

struct RunWeights {
  std::string name;  // "final weights", "snapshot g000-v000000500"
  Version version;
  FloatBuffer flat;
};
// Reads version `step`; without a step the final weights, or the newest snapshot if there are none.
Result<RunWeights> ReadRunWeights(const RunFolder& folder, const JobPlan& plan,
                                  std::optional<uint64_t> step);
// Reads the average of the weights (optimizer.ema_decay) at version `step`; without a step, that of
// the newest snapshot. A completed run has a snapshot of its end.
Result<RunWeights> ReadAveragedWeights(const RunFolder& folder, const JobPlan& plan,
                                       std::optional<uint64_t> step);

// Returns the metadata of files with a run's weights: step, model, data set, and how a sample
// becomes an input (docs/data.md).
SafetensorsMetadata WeightsMetadata(const JobPlan& plan, Version version);

// Reads the run's best weights (snapshot.best). kNotFound: the run kept none, or has not ended.
Result<RunWeights> ReadBestWeights(const RunFolder& folder, const JobPlan& plan);
// Writes the weights of the run's best version. The run ends with `final_version`, which its
// summary does not have yet. If a version's snapshot could not be stored, or cannot be read, the
// next best one counts. Returns the version, or none if no version was evaluated.
Result<std::optional<Version>> WriteBestWeights(const RunFolder& folder, const JobPlan& plan,
                                                std::span<const EvaluationSummary> evaluations,
                                                Version final_version);

// Returns the snapshot of version `step`, of the newest generation that has one; without a step,
// the newest. kNotFound names the steps that exist.
Result<SnapshotManifest> ChooseSnapshot(const RunFolder& folder, std::optional<uint64_t> step);
// Returns the newest snapshot before `version`; none means version 0, which follows from the seed.
Result<std::optional<SnapshotManifest>> SnapshotBefore(const RunFolder& folder, Version version);

}  // namespace pando
