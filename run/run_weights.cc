#include "run/run_weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "common/text.h"
#include "job/job_file.h"
#include "optim/optimizer.h"
#include "run/snapshot_file.h"

namespace pando {
namespace {

constexpr const char* kStepKey = "step";

// Returns for example "the snapshots in runs/a/snapshots are of steps 500, 1000".
std::string StepsText(const RunFolder& folder, const std::vector<SnapshotManifest>& manifests) {
  std::set<uint64_t> steps;
  for (const SnapshotManifest& manifest : manifests)
    steps.insert(manifest.snapshot.version.value());
  if (steps.empty()) return fmt::format("there are no snapshots in {}", folder.SnapshotsPath());
  return fmt::format("the snapshots in {} are of steps {}", folder.SnapshotsPath(),
                     Joined(std::vector(steps.begin(), steps.end())));
}

// Returns the last version of the job, or that of an early stop.
Version FinalVersion(const RunFolder& folder, const JobPlan& plan) {
  Result<Summary> summary = folder.ReadSummary();
  const bool is_known = summary.ok() && summary->stopped_early;
  return is_known ? Version(summary->steps) : plan.steps.final_version();
}

Result<RunWeights> ReadNamed(const std::string& path, const char* name, Version version,
                             const JobPlan& plan) {
  PANDO_ASSIGN_OR_RETURN(FloatBuffer flat, ReadWeights(path, plan.layout));
  return RunWeights{name, version, std::move(flat)};
}

// Returns the version of final.safetensors; none if the file does not exist. A file without a step
// belongs to a run that has completed.
std::optional<Version> VersionOfFinal(const RunFolder& folder, Version final_version) {
  Result<SafetensorsFile> file = SafetensorsFile::Open(folder.WeightsPath());
  if (file.status().code() == StatusCode::kNotFound) return std::nullopt;
  if (!file.ok()) return final_version;  // reading it reports the fault
  const auto step = file->metadata().find(kStepKey);
  if (step != file->metadata().end()) {
    const auto number = ParseNumber<uint64_t>(step->second);
    return number ? std::optional(Version(*number)) : std::nullopt;
  }
  Result<Summary> summary = folder.ReadSummary();
  const bool has_completed = !summary.ok() || summary->status != kStatusInterrupted;
  return has_completed ? std::optional(final_version) : std::nullopt;
}

}  // namespace

// Lists are written as JSON arrays, because metadata are texts.
SafetensorsMetadata WeightsMetadata(const JobPlan& plan, Version version) {
  const Summary facts = MakeSummary(plan);
  const Preprocessing& inputs = facts.preprocessing;
  const auto list = [](const auto& values) {
    return nlohmann::json(values).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  SafetensorsMetadata metadata{{kStepKey, fmt::format("{}", version.value())},
                               {"model", facts.model},
                               {"dataset", facts.dataset},
                               {"input_shape", facts.input_shape},
                               {"class_names", list(inputs.class_names)},
                               {"pando_version", facts.pando_version}};
  if (!inputs.mean.empty()) metadata["input_mean"] = list(inputs.mean);
  if (!inputs.deviation.empty()) metadata["input_deviation"] = list(inputs.deviation);
  if (!inputs.columns.empty()) metadata["input_columns"] = list(inputs.columns);
  return metadata;
}

Result<Job> JobOfRun(const RunFolder& folder, const std::string& data_path) {
  Result<Job> job = ReadJobFile(folder.JobPath());
  if (job.status().code() == StatusCode::kNotFound) {
    return NotFound(fmt::format("{} holds no run ({}); give the run folder of a pando train",
                                folder.path(), job.status().message()));
  }
  if (job.ok() && !data_path.empty()) job->data_path = data_path;
  return job;
}

Result<SnapshotManifest> ChooseSnapshot(const RunFolder& folder, std::optional<uint64_t> step) {
  PANDO_ASSIGN_OR_RETURN(std::vector<SnapshotManifest> manifests,
                         ReadManifests(folder.SnapshotsPath()));
  for (auto it = manifests.rbegin(); it != manifests.rend(); ++it) {
    if (!step || it->snapshot.version == Version(*step)) return *it;
  }
  return NotFound(fmt::format("{}{}", step ? fmt::format("no snapshot of step {}: ", *step) : "",
                              StepsText(folder, manifests)));
}

Result<std::optional<SnapshotManifest>> SnapshotBefore(const RunFolder& folder, Version version) {
  PANDO_ASSIGN_OR_RETURN(std::vector<SnapshotManifest> manifests,
                         ReadManifests(folder.SnapshotsPath()));
  std::optional<SnapshotManifest> before;
  for (SnapshotManifest& manifest : manifests) {
    const bool is_nearer = !before || manifest.snapshot.version >= before->snapshot.version;
    if (manifest.snapshot.version < version && is_nearer) before = std::move(manifest);
  }
  return before;
}

namespace {

Result<RunWeights> ReadSnapshotWeights(const RunFolder& folder, const JobPlan& plan,
                                       std::optional<uint64_t> step, bool is_averaged) {
  PANDO_ASSIGN_OR_RETURN(SnapshotManifest manifest, ChooseSnapshot(folder, step));
  const Optimizer optimizer(plan.job.optimizer, plan.layout);
  PANDO_ASSIGN_OR_RETURN(SnapshotImage image, ReadSnapshot(folder.SnapshotsPath(), manifest, plan));
  const std::string name = "snapshot " + SnapshotName(manifest.snapshot);
  const Version version = manifest.snapshot.version;
  if (!is_averaged) return RunWeights{name, version, std::move(image.parameters)};
  for (uint32_t s = 0; s < plan.shards.shard_count(); ++s) {
    const ShardRange& range = plan.shards.range(ShardId(s));
    const auto average = std::as_const(*image.states[s])
                             .span()
                             .subspan((optimizer.state_count() - 1) * range.size(), range.size());
    std::ranges::copy(average, image.parameters.data() + range.first);
  }
  return RunWeights{"averaged weights of " + name, version, std::move(image.parameters)};
}

// An attacker may change a file's metadata with its values, so the summary's hash is checked.
Status CheckIsOfRun(const Result<RunWeights>& final, const RunFolder& folder, const JobPlan& plan) {
  const Result<Summary> summary = folder.ReadSummary();
  if (!final.ok() || !summary.ok() || summary->weights_hash.empty()) return Status();
  const std::string hash = WeightsHash(plan.layout, final->flat.span());
  if (hash == summary->weights_hash) return Status();
  return Corrupt(fmt::format(
      "{}: its values have the hash {}, and {} says {}: the file was changed after the run. Take a "
      "snapshot (--step), or give the file by itself",
      folder.WeightsPath(), hash, folder.SummaryPath(), summary->weights_hash));
}

Result<RunWeights> ReadFinalOrSnapshot(const RunFolder& folder, const JobPlan& plan,
                                       std::optional<uint64_t> step, Version final_version) {
  const bool is_final = !step || Version(*step) == final_version;
  const auto read_snapshot = [&] { return ReadSnapshotWeights(folder, plan, step, false); };
  if (!is_final || VersionOfFinal(folder, final_version) != final_version) return read_snapshot();
  Result<RunWeights> final = ReadNamed(folder.WeightsPath(), "final weights", final_version, plan);
  if (const Status same = CheckIsOfRun(final, folder, plan); !same.ok()) final = same;
  if (final.ok() || !step) return final;
  Result<RunWeights> snapshot = read_snapshot();  // for example, the file was damaged
  return snapshot.ok() ? std::move(snapshot) : std::move(final);
}

}  // namespace

Result<RunWeights> ReadRunWeights(const RunFolder& folder, const JobPlan& plan,
                                  std::optional<uint64_t> step) {
  return ReadFinalOrSnapshot(folder, plan, step, FinalVersion(folder, plan));
}

Result<RunWeights> ReadAveragedWeights(const RunFolder& folder, const JobPlan& plan,
                                       std::optional<uint64_t> step) {
  if (plan.job.optimizer.ema_decay == 0.0) {
    return InvalidArgument(fmt::format(
        "{} has no averaged weights: its job has optimizer.ema_decay = 0", folder.path()));
  }
  return ReadSnapshotWeights(folder, plan, step, /*is_averaged=*/true);
}

Result<RunWeights> ReadBestWeights(const RunFolder& folder, const JobPlan& plan) {
  PANDO_ASSIGN_OR_RETURN(Summary summary, folder.ReadSummary());
  if (!summary.best_weights_step) {
    return NotFound(fmt::format(
        "the run in {} kept no best version; it takes snapshot.best = true in its job, and {} "
        "samples",
        folder.path(), plan.job.evaluated_on()));
  }
  return ReadNamed(folder.BestWeightsPath(), "best weights", Version(*summary.best_weights_step),
                   plan);
}

Result<std::optional<Version>> WriteBestWeights(const RunFolder& folder, const JobPlan& plan,
                                                std::span<const EvaluationSummary> evaluations,
                                                Version final_version) {
  Status failure;
  for (const Version version : BestFirst(plan.job, evaluations)) {
    Result<RunWeights> weights = ReadFinalOrSnapshot(folder, plan, version.value(), final_version);
    if (weights.ok()) {
      const FloatBuffer& flat = weights->flat;
      PANDO_RETURN_IF_ERROR(WriteWeights(folder.BestWeightsPath(), plan.layout, flat.span(),
                                         WeightsMetadata(plan, version)));
      return std::optional(version);
    }
    if (failure.ok()) failure = weights.status();
  }
  if (!failure.ok()) return failure;
  return std::optional<Version>();
}

}  // namespace pando
