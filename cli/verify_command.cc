// `pando verify`: computes a stretch of a run again and compares (P41).
#include <fmt/format.h>

#include <bit>
#include <memory>
#include <utility>

#include "cli/commands.h"
#include "common/exit_codes.h"
#include "common/system.h"
#include "job/device_choice.h"
#include "job/run_plan.h"
#include "node/log.h"
#include "node/shutdown.h"
#include "optim/optimizer.h"
#include "run/run_weights.h"
#include "run/serial_trainer.h"
#include "run/snapshot_file.h"

namespace pando {
namespace {

struct VerifyOptions {
  std::string run_dir;
  std::string data_path;
  std::optional<uint64_t> step;
};

// The first float that differs, in the order of the flat vector: "conv1.weight[7] is 0.1 there and
// 0.2 when computed again"; empty if all are equal. Bits are compared: -0 is not 0.
std::string FirstDifference(const JobPlan& plan, std::span<const float> stored,
                            std::span<const float> again) {
  for (size_t i = 0; i < plan.layout.tensor_count(); ++i) {
    const TensorSpec& spec = plan.layout.specs()[i];
    for (size_t k = 0; k < spec.size(); ++k) {
      const float a = stored[plan.layout.offset(i) + k];
      const float b = again[plan.layout.offset(i) + k];
      if (std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b)) continue;
      return fmt::format("{}[{}] of {} is {:.9g} there, and {:.9g} when computed again", spec.name,
                         k, spec.size(), a, b);
    }
  }
  return "";
}

// The same of the optimizer's state, where all parameters are equal.
std::string FirstStateDifference(const JobPlan& plan, std::span<const SharedBuffer> stored,
                                 std::span<const FloatBuffer> again) {
  for (uint32_t s = 0; s < plan.shards.shard_count(); ++s) {
    const ShardRange& range = plan.shards.range(ShardId(s));
    for (size_t k = 0; k < again[s].size(); ++k) {
      const float a = stored[s]->data()[k];
      const float b = again[s].data()[k];
      if (std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b)) continue;
      if (k / range.size() == OptimizerStateCount(plan.job.optimizer)) {
        return fmt::format(
            "value {} behind the optimizer state of shard {} (counts, partial values) is {:.9g} "
            "there, and {:.9g} when computed again",
            k % range.size(), s, a, b);
      }
      const size_t at = range.first + k % range.size();
      size_t tensor = 0;
      while (plan.layout.offset(tensor + 1) <= at) ++tensor;
      return fmt::format(
          "optimizer state {} of {}[{}] is {:.9g} there, and {:.9g} when computed again",
          k / range.size(), plan.layout.specs()[tensor].name, at - plan.layout.offset(tensor), a,
          b);
    }
  }
  return "";
}

Result<SerialResult> Replay(const OpenedJob& job, const std::optional<SnapshotImage>& from,
                            Version first, Version last) {
  if (job.plan.job.allow_nondeterministic) {
    return InvalidArgument(
        "the run allowed algorithms whose bits differ from run to run "
        "(train.allow_nondeterministic): there is nothing to compare with");
  }
  if (job.plan.pushes.has_feedback()) {
    return InvalidArgument(
        "the run's gradients contained errors of earlier ones (train.codec is 1-bit or top-k), and "
        "snapshots do not store them: there is nothing to compare with");
  }
  PANDO_ASSIGN_OR_RETURN(OpenedDevice device, OpenDevice(job.plan.job.device, job.plan.job));
  fmt::print(stderr, "pando: computing on {}; workers of another kind compute other bits\n",
             device.kind);
  ShutdownSignal shutdown;
  const SerialCallbacks callbacks{
      .interrupted = [&] { return shutdown.Take() != 0 || shutdown.first_signal() != 0; }};
  SerialStretch stretch{.first = first, .last = last, .is_evaluated = false};
  if (from) {
    stretch.parameters = &from->parameters;
    stretch.states = from->states;
  }
  Result<SerialResult> result =
      TrainSerially(job.plan.job, *job.data, job.model, callbacks, stretch, device.device());
  if (result.ok() && result->was_interrupted) return Interrupted("interrupted");
  return result;
}

Result<std::string> Compare(const VerifyOptions& options, const RunFolder& folder,
                            const OpenedJob& job) {
  const JobPlan& plan = job.plan;
  const Optimizer optimizer(plan.job.optimizer, plan.layout);
  PANDO_ASSIGN_OR_RETURN(SnapshotManifest wanted, ChooseSnapshot(folder, options.step));
  PANDO_ASSIGN_OR_RETURN(std::optional<SnapshotManifest> before,
                         SnapshotBefore(folder, wanted.snapshot.version));
  PANDO_ASSIGN_OR_RETURN(SnapshotImage stored,
                         ReadSnapshot(folder.SnapshotsPath(), wanted, plan, optimizer));
  std::optional<SnapshotImage> from;
  if (before) {
    PANDO_ASSIGN_OR_RETURN(SnapshotImage image,
                           ReadSnapshot(folder.SnapshotsPath(), *before, plan, optimizer));
    from = std::move(image);
  }
  const Version first = before ? before.snapshot.version : Version(0);
  const Version last = wanted.snapshot.version;
  fmt::print(stderr, "pando: computing steps {} to {} again\n", first.value(), last.value() - 1);
  PANDO_ASSIGN_OR_RETURN(SerialResult again, Replay(job, from, first, last));
  std::string difference =
      FirstDifference(plan, std::as_const(stored.parameters).span(), again.parameters->span());
  if (difference.empty()) difference = FirstStateDifference(plan, stored.states, again.states);
  const std::string name = SnapshotName(wanted.snapshot);
  const std::string since = before ? SnapshotName(before.snapshot) : "the start";
  if (difference.empty()) {
    fmt::print("{}: every bit follows from {}\n", name, since);
  } else {
    fmt::print("{} does not follow from {}: {}\n", name, since, difference);
  }
  return difference;
}

Result<int> Verify(const VerifyOptions& options) {
  SetUpLog({.process = "verify"});
  SetFloatEnvironment();
  const RunFolder folder = RunFolder::Open(options.run_dir);
  PANDO_ASSIGN_OR_RETURN(Job job, JobOfRun(folder, options.data_path));
  PANDO_ASSIGN_OR_RETURN(OpenedJob opened, OpenedJob::Open(job));
  PANDO_ASSIGN_OR_RETURN(std::string difference, Compare(options, folder, opened));
  return difference.empty() ? kExitCompleted : kExitFailed;
}

}  // namespace

Subcommand AddVerifyCommand(CLI::App& app) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App& command = DeclareCommand(
      app, "verify",
      "Computes a run again from the snapshot before step t to that of step t, in this process, "
      "and\nnames the first tensor and element that differ: was a machine wrong?",
      "Example:\n  pando verify runs/first --step 1000\n\nExit code 1: something differs.");
  AddOption(command, "RUN_DIR", &options->run_dir, "the run's folder")->required();
  AddOption(command, "--step N", &options->step, "t; without it, the newest snapshot's");
  AddMovedDataOption(command, &options->data_path);
  return [options] { return Verify(*options); };
}

}  // namespace pando
