// The subcommands that read a run's results: export, evaluate, verify.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands.h"
#include "cli/weights_choice.h"
#include "common/exit_codes.h"
#include "common/output.h"
#include "common/system.h"
#include "job/device_choice.h"
#include "job/run_plan.h"
#include "node/log.h"
#include "node/shutdown_signal.h"
#include "optim/optimizer.h"
#include "plan/external_model.h"
#include "run/initial_weights.h"
#include "run/run_weights.h"
#include "run/safetensors_file.h"
#include "run/serial_trainer.h"
#include "run/snapshot_file.h"

namespace pando {
namespace {

struct ExportOptions {
  std::string run_dir;
  std::string output;
  std::string data_path;
  VersionChoice version;
};

// Returns the run's plan. A program's job lists PyTorch's tensors once the program has joined.
Result<JobPlan> PlanOfRun(const RunFolder& folder, const Job& job) {
  if (IsExternal(job)) {
    if (IsDeclared(job)) return ExternalPlan(job);
    return NotFound(
        fmt::format("{} has no weights yet: its program has not joined the run", folder.path()));
  }
  PANDO_ASSIGN_OR_RETURN(OpenedJob opened, OpenedJob::Open(job));
  return std::move(opened.plan);
}

Result<int> Export(const ExportOptions& options) {
  SetUpLog({.process = "export"});
  const RunFolder folder = RunFolder::Open(options.run_dir);
  PANDO_ASSIGN_OR_RETURN(Job job, JobOfRun(folder, options.data_path));
  PANDO_ASSIGN_OR_RETURN(const JobPlan plan, PlanOfRun(folder, job));
  PANDO_ASSIGN_OR_RETURN(RunWeights weights, ReadVersion(folder, plan, options.version));
  PANDO_RETURN_IF_ERROR(WriteWeights(options.output, plan.layout, weights.flat.span(),
                                     WeightsMetadata(plan, weights.version), FileAccess::kForAll));
  Print("{}: {} after {} steps, weights_hash {}\n", options.output, weights.name,
        weights.version.value(), WeightsHash(plan.layout, std::as_const(weights.flat).span()));
  return kExitCompleted;
}

// ---- evaluate -----------------------------------------------------------------------------------

struct EvaluateOptions {
  WeightsChoice weights;
  bool is_json = false;
  bool lists_classes = false;
};

// Returns a table of the classes, each with the class that its samples were most often taken for.
std::string ClassTable(const EvaluationSummary& summary, const std::vector<std::string>& names) {
  size_t width = std::string_view("CLASS").size();
  for (const std::string& name : names) width = std::max(width, name.size());
  std::string text = fmt::format("{:>{}} {:>8} {:>9}  {}\n", "CLASS", width, "SAMPLES", "ACCURACY",
                                 "MOST OFTEN TAKEN FOR");
  const size_t class_count = summary.classes.size();
  for (size_t c = 0; c < class_count; ++c) {
    const ClassScore& score = summary.classes[c];
    const std::string accuracy =
        score.sample_count == 0 ? "-" : fmt::format("{:.2f} %", 100 * score.accuracy());
    text += fmt::format("{:>{}} {:>8} {:>9}  ", names[c], width, score.sample_count, accuracy);
    size_t other = c;
    uint64_t count = 0;
    for (size_t p = 0; p < class_count && !summary.confusion.empty(); ++p) {
      const uint64_t here = summary.confusion[c * class_count + p];
      if (p == c || here <= count) continue;
      other = p;
      count = here;
    }
    text += count == 0
                ? "\n"
                : fmt::format("{} ({} sample{})\n", names[other], count, count == 1 ? "" : "s");
  }
  return text;
}

void PrintEvaluation(const EvaluateOptions& options, const RunWeights& weights,
                     const OpenedJob& opened, const EvaluationSummary& summary) {
  const TensorLayout& layout = opened.plan.layout;
  const std::vector<std::string> names = opened.data->class_names();
  const double loss = summary.loss_sum / static_cast<double>(summary.sample_count);
  const std::string hash = WeightsHash(layout, std::as_const(weights.flat).span());
  if (!options.is_json) {
    const std::string top5 =
        names.size() > 5 ? fmt::format("top 5 {:.2f} %, ", 100 * summary.top5_accuracy()) : "";
    Print(
        "{} of {} on {}: test accuracy {:.2f} %, {}test loss {:.4f} on {} sample{}, weights_hash "
        "{}\n",
        weights.name, opened.plan.job.model, opened.plan.job.dataset, 100 * summary.accuracy(),
        top5, loss, summary.sample_count, summary.sample_count == 1 ? "" : "s", hash);
    if (options.lists_classes) Print("{}", ClassTable(summary, names));
    return;
  }
  nlohmann::ordered_json classes = nlohmann::ordered_json::array();
  for (size_t c = 0; c < summary.classes.size(); ++c) {
    const ClassScore& score = summary.classes[c];
    classes.push_back(
        {{"name", names[c]}, {"samples", score.sample_count}, {"correct", score.correct_count}});
  }
  const nlohmann::ordered_json json{{"weights", weights.name},
                                    {"weights_hash", hash},
                                    {"test_accuracy", summary.accuracy()},
                                    {"test_top5_accuracy", summary.top5_accuracy()},
                                    {"test_loss", loss},
                                    {"samples", summary.sample_count},
                                    {"correct", summary.correct_count},
                                    {"top5_correct", summary.top5_count},
                                    {"classes", classes}};
  Print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

// Uses the test set, even if the run was evaluated on a part of its training samples.
Status UseTestSet(OpenedJob* opened) {
  Job job = opened->plan.job;
  if (job.validation_share == 0) return Status();
  job.validation_share = 0;
  PANDO_ASSIGN_OR_RETURN(opened->data, OpenDataSet(job));
  opened->plan.data.test_samples = opened->data->sample_count(Split::kTest);
  return Status();
}

Result<int> Measure(const EvaluateOptions& options) {
  SetUpLog({.process = "evaluate"});
  SetFloatEnvironment();
  PANDO_ASSIGN_OR_RETURN(ChosenWeights chosen, OpenWeights(options.weights, DataUse::kNeeded));
  PANDO_RETURN_IF_ERROR(UseTestSet(&chosen.opened));
  const JobPlan& plan = chosen.opened.plan;
  if (plan.data.test_samples == 0)
    return InvalidArgument(fmt::format("{} has no test samples", plan.job.dataset));
  PANDO_ASSIGN_OR_RETURN(const OpenedDevice device, OpenDevice(plan.job.device, plan.job));
  const RunWeights& weights = chosen.weights;
  PANDO_ASSIGN_OR_RETURN(EvaluationSummary summary,
                         EvaluateSerially(plan, *chosen.opened.data, chosen.opened.model,
                                          weights.flat, device.device()));
  PrintEvaluation(options, weights, chosen.opened, summary);
  if (std::isfinite(summary.loss_sum)) return kExitCompleted;
  return Internal(
      fmt::format("{}: the test loss is not finite: training has diverged", weights.name));
}

// ---- verify: computes a part of a run again and compares (P41) ----------------------------------

struct VerifyOptions {
  std::string run_dir;
  std::string data_path;
  std::optional<uint64_t> step;
};

// Returns the first float that differs, in the order of the flat vector: "conv1.weight[7] is 0.1
// there and 0.2 when computed again"; empty if all are equal. It compares bits: -0 is not 0.
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

// Returns the first difference of the optimizer's state, if all parameters are equal.
std::string FirstStateDifference(const JobPlan& plan, std::span<const SharedBuffer> stored,
                                 std::span<const FloatBuffer> again) {
  for (uint32_t s = 0; s < plan.shards.shard_count(); ++s) {
    const ShardRange& range = plan.shards.range(ShardId(s));
    for (size_t k = 0; k < again[s].size(); ++k) {
      const float a = stored[s]->data()[k];
      const float b = again[s].data()[k];
      if (std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b)) continue;
      const size_t of_parameters = OptimizerStateCount(plan.job.optimizer) * range.size();
      if (k >= of_parameters) {
        return fmt::format(
            "value {} behind the optimizer state of shard {} (counts, partial values; with "
            "train.staleness the version before) is {:.9g} there, and {:.9g} when computed again",
            k - of_parameters, s, a, b);
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

Result<SerialResult> Replay(const OpenedJob& job, const RunFolder& folder,
                            const std::optional<SnapshotImage>& from, Version first, Version last) {
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
  PANDO_ASSIGN_OR_RETURN(const OpenedDevice device, OpenDevice(job.plan.job.device, job.plan.job));
  Say("pando: computing on {}; workers of another kind compute other bits\n", device.kind);
  ShutdownSignal shutdown;
  const SerialCallbacks callbacks{
      .interrupted = [&] { return shutdown.Take() != 0 || shutdown.first_signal() != 0; }};
  SerialStretch stretch{.first = first, .last = last, .is_evaluated = false};
  PANDO_ASSIGN_OR_RETURN(stretch.initial,
                         ReadInitialWeights(folder.path(), job.plan.job, job.plan.layout));
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
  PANDO_ASSIGN_OR_RETURN(SnapshotManifest wanted, ChooseSnapshot(folder, options.step));
  PANDO_ASSIGN_OR_RETURN(std::optional<SnapshotManifest> before,
                         SnapshotBefore(folder, wanted.snapshot.version));
  PANDO_ASSIGN_OR_RETURN(SnapshotImage stored, ReadSnapshot(folder.SnapshotsPath(), wanted, plan));
  std::optional<SnapshotImage> from;
  if (before) {
    PANDO_ASSIGN_OR_RETURN(SnapshotImage image,
                           ReadSnapshot(folder.SnapshotsPath(), *before, plan));
    from = std::move(image);
  }
  const Version first = before ? before->snapshot.version : Version(0);
  const Version last = wanted.snapshot.version;
  Say("pando: computing steps {} to {} again\n", first.value(), last.value() - 1);
  PANDO_ASSIGN_OR_RETURN(SerialResult again, Replay(job, folder, from, first, last));
  std::string difference =
      FirstDifference(plan, std::as_const(stored.parameters).span(), again.parameters->span());
  if (difference.empty()) difference = FirstStateDifference(plan, stored.states, again.states);
  const std::string name = SnapshotName(wanted.snapshot);
  const std::string since = before ? SnapshotName(before->snapshot) : "the start";
  if (difference.empty()) {
    Print("{}: every bit follows from {}\n", name, since);
  } else {
    Print("{} does not follow from {}: {}\n", name, since, difference);
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

Subcommand AddExportCommand(CLI::App& app) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App& command = DeclareCommand(
      app, "export",
      "Writes a run's weights as one safetensors file with PyTorch's names and layouts: the final\n"
      "ones, or the newest snapshot of a run that has not ended.",
      "Example:\n  pando export runs/first first.safetensors --step 500\n");
  AddOption(command, "RUN_DIR", &options->run_dir, "the run's folder").Required();
  AddOption(command, "OUT OUT.safetensors", &options->output, "the file to write").Required();
  AddVersionChoice(command, &options->version);
  AddMovedDataOption(command, &options->data_path);
  return [options] { return Export(*options); };
}

Subcommand AddEvaluateCommand(CLI::App& app) {
  auto options = std::make_shared<EvaluateOptions>();
  CLI::App& command = DeclareCommand(
      app, "evaluate",
      "Measures accuracy and loss on the test set, to the same bits as a run does.",
      "Examples:\n  pando evaluate runs/first\n"
      "  pando evaluate first.safetensors --model mnist-cnn --dataset mnist --data data/mnist\n");
  AddWeightsChoice(command, &options->weights);
  const auto limit = [options](const std::string& text) {
    options->weights.source.overrides.push_back(
        {.key = "data.test_limit", .text = text, .where = "--limit"});
  };
  AddTaker(command, "--limit N", limit, "test samples, a subset drawn from the seed; 0: all")
      .Group("Model and data");
  AddFlag(command, "--classes", &options->lists_classes,
          "each class's accuracy, and what it is most often taken for");
  AddFlag(command, "--json", &options->is_json, "print the result as JSON");
  return [options] { return Measure(*options); };
}

Subcommand AddVerifyCommand(CLI::App& app) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App& command = DeclareCommand(
      app, "verify",
      "Computes a run again from the snapshot before step t to that of step t, in this process, "
      "and\nnames the first tensor and element that differ: was a machine wrong?",
      "Example:\n  pando verify runs/first --step 1000\n\nExit code 1: something differs.");
  AddOption(command, "RUN_DIR", &options->run_dir, "the run's folder").Required();
  AddOption(command, "--step N", &options->step, "t; without it, the newest snapshot's");
  AddMovedDataOption(command, &options->data_path);
  return [options] { return Verify(*options); };
}

}  // namespace pando
