#include "cli/run_weights.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>
#include <utility>

#include "cli/job_file.h"
#include "cli/text.h"
#include "common/safetensors.h"
#include "server/optimizer.h"
#include "server/snapshot_file.h"

namespace pando {
namespace {

// "the snapshots in runs/a/snapshots are of steps 500, 1000".
std::string StepsText(const RunFolder& folder, const std::vector<SnapshotManifest>& manifests) {
  std::set<uint64_t> steps;
  for (const SnapshotManifest& manifest : manifests)
    steps.insert(manifest.snapshot.version.value());
  if (steps.empty()) return fmt::format("there are no snapshots in {}", folder.SnapshotsPath());
  return fmt::format("the snapshots in {} are of steps {}", folder.SnapshotsPath(),
                     Joined(std::vector(steps.begin(), steps.end())));
}

// The final weights, as far as there are any.
Result<RunWeights> ReadFinalWeights(const RunFolder& folder, const JobPlan& plan) {
  Result<FloatBuffer> flat = ReadWeights(folder.WeightsPath(), plan.layout);
  if (!flat.ok()) return flat.status();
  return RunWeights{"final weights", plan.steps.final_version(), *std::move(flat)};
}

}  // namespace

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
  Result<std::vector<SnapshotManifest>> manifests = ReadManifests(folder.SnapshotsPath());
  if (!manifests.ok()) return manifests.status();
  for (auto it = manifests->rbegin(); it != manifests->rend(); ++it) {
    if (!step || it->snapshot.version == Version(*step)) return *it;
  }
  return NotFound(fmt::format("{}{}", step ? fmt::format("no snapshot of step {}: ", *step) : "",
                              StepsText(folder, *manifests)));
}

Result<std::optional<SnapshotManifest>> SnapshotBefore(const RunFolder& folder, Version version) {
  Result<std::vector<SnapshotManifest>> manifests = ReadManifests(folder.SnapshotsPath());
  if (!manifests.ok()) return manifests.status();
  std::optional<SnapshotManifest> before;
  for (SnapshotManifest& manifest : *manifests) {
    const bool is_nearer = !before || manifest.snapshot.version >= before->snapshot.version;
    if (manifest.snapshot.version < version && is_nearer) before = std::move(manifest);
  }
  return before;
}

Result<RunWeights> ReadRunWeights(const RunFolder& folder, const JobPlan& plan,
                                  std::optional<uint64_t> step) {
  std::error_code ignored;  // reading says what is wrong
  const bool has_final = std::filesystem::exists(folder.WeightsPath(), ignored);
  const bool is_final = !step || Version(*step) == plan.steps.final_version();
  if (has_final && is_final) return ReadFinalWeights(folder, plan);
  Result<SnapshotManifest> manifest = ChooseSnapshot(folder, step);
  if (!manifest.ok()) return manifest.status();
  const uint32_t state_count = OptimizerStateCount(plan.job.optimizer);
  Result<SnapshotImage> image = ReadSnapshot(folder.SnapshotsPath(), *manifest, plan, state_count);
  if (!image.ok()) return image.status();
  return RunWeights{"snapshot " + SnapshotName(manifest->snapshot), manifest->snapshot.version,
                    std::move(image->parameters)};
}

}  // namespace pando
