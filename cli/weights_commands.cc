// The subcommands that read what a run left: export, evaluate.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "common/exit_codes.h"
#include "common/system.h"
#include "job/device_choice.h"
#include "job/run_plan.h"
#include "node/log.h"
#include "run/run_weights.h"
#include "run/safetensors.h"
#include "run/serial_trainer.h"

namespace pando {
namespace {

struct ExportOptions {
  std::string run_dir;
  std::string output;
  std::string data_path;
  std::optional<uint64_t> step;
  bool is_averaged = false;
  bool is_best = false;
};

int Export(const ExportOptions& options) {
  SetUpLog({.process = "export"});
  const RunFolder folder = RunFolder::Open(options.run_dir);
  Result<Job> job = JobOfRun(folder, options.data_path);
  if (!job.ok()) return Report(job.status());
  Result<OpenedJob> opened = OpenedJob::Open(*job);
  if (!opened.ok()) return Report(opened.status());
  Result<RunWeights> weights = options.is_best ? ReadBestWeights(folder, opened->plan)
                               : options.is_averaged
                                   ? ReadAveragedWeights(folder, opened->plan, options.step)
                                   : ReadRunWeights(folder, opened->plan, options.step);
  if (!weights.ok()) return Report(weights.status());
  const TensorLayout& layout = opened->plan.layout;
  const SafetensorsMetadata metadata = WeightsMetadata(*job, weights->version);
  if (Status s = WriteWeights(options.output, layout, weights->flat.span(), metadata); !s.ok())
    return Report(s);
  fmt::print("{}: {} after {} steps, weights_hash {}\n", options.output, weights->name,
             weights->version.value(), WeightsHash(layout, std::as_const(weights->flat).span()));
  return kExitCompleted;
}

// ---- evaluate -----------------------------------------------------------------------------------

struct EvaluateOptions {
  std::string path;  // of a run folder or a file
  JobSource source;
  std::optional<uint64_t> step;
  bool is_averaged = false;
  bool is_json = false;
  bool lists_classes = false;
};

// The job that says model and data: of the run, of the folder that the file lies in, or of the
// options alone.
Result<Job> FindJob(const EvaluateOptions& options, bool is_folder) {
  namespace fs = std::filesystem;
  const fs::path folder = is_folder ? fs::path(options.path) : fs::path(options.path).parent_path();
  const std::string beside = RunFolder::Open(folder.empty() ? "." : folder.string()).JobPath();
  std::error_code ignored;  // reading it says what is wrong
  JobSource source = options.source;
  if (source.job_path.empty() && (is_folder || fs::exists(beside, ignored)))
    source.job_path = beside;
  return ResolveJob(source);
}

Result<RunWeights> ReadEvaluated(const EvaluateOptions& options, bool is_folder,
                                 const JobPlan& plan) {
  const RunFolder folder = RunFolder::Open(options.path);
  if (is_folder && options.is_averaged) return ReadAveragedWeights(folder, plan, options.step);
  if (is_folder) return ReadRunWeights(folder, plan, options.step);
  Result<FloatBuffer> flat = ReadWeights(options.path, plan.layout);
  if (!flat.ok()) return flat.status();
  return RunWeights{options.path, Version(0), *std::move(flat)};
}

// By class, and what its samples were taken for most often otherwise.
std::string ClassTable(const EvaluationSummary& summary) {
  std::string text = fmt::format("{:>6} {:>8} {:>9}  {}\n", "CLASS", "SAMPLES", "ACCURACY",
                                 "MOST OFTEN TAKEN FOR");
  const size_t class_count = summary.classes.size();
  for (size_t c = 0; c < class_count; ++c) {
    const ClassScore& score = summary.classes[c];
    text += fmt::format("{:>6} {:>8} {:>7.2f} %  ", c, score.sample_count, 100 * score.accuracy());
    size_t other = c;
    uint64_t count = 0;
    for (size_t p = 0; p < class_count && !summary.confusion.empty(); ++p) {
      const uint64_t here = summary.confusion[c * class_count + p];
      if (p == c || here <= count) continue;
      other = p;
      count = here;
    }
    text += count == 0 ? "\n" : fmt::format("{} ({} samples)\n", other, count);
  }
  return text;
}

void PrintEvaluation(const EvaluateOptions& options, const RunWeights& weights,
                     const TensorLayout& layout, const EvaluationSummary& summary) {
  const double loss = summary.loss_sum / static_cast<double>(summary.sample_count);
  const std::string hash = WeightsHash(layout, std::as_const(weights.flat).span());
  if (!options.is_json) {
    fmt::print(
        "{}: test accuracy {:.2f} %, top 5 {:.2f} %, test loss {:.4f} on {} samples, weights_hash "
        "{}\n",
        weights.name, 100 * summary.accuracy(), 100 * summary.top5_accuracy(), loss,
        summary.sample_count, hash);
    if (options.lists_classes) fmt::print("{}", ClassTable(summary));
    return;
  }
  nlohmann::ordered_json classes = nlohmann::ordered_json::array();
  for (const ClassScore& score : summary.classes)
    classes.push_back({{"samples", score.sample_count}, {"correct", score.correct_count}});
  const nlohmann::ordered_json json{{"weights", weights.name},
                                    {"weights_hash", hash},
                                    {"test_accuracy", summary.accuracy()},
                                    {"test_top5_accuracy", summary.top5_accuracy()},
                                    {"test_loss", loss},
                                    {"samples", summary.sample_count},
                                    {"correct", summary.correct_count},
                                    {"top5_correct", summary.top5_count},
                                    {"classes", classes}};
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

int Measure(const EvaluateOptions& options) {
  SetUpLog({.process = "evaluate"});
  SetFloatEnvironment();
  std::error_code ignored;  // what cannot be looked at is no folder
  const bool is_folder = std::filesystem::is_directory(options.path, ignored);
  if (!is_folder && (options.step || options.is_averaged)) {
    return Report(
        InvalidArgument(fmt::format("{} chooses from the snapshots of a run folder, and {} is none",
                                    options.step ? "--step" : "--ema", options.path)));
  }
  if (!is_folder) {  // before anything is said of its data
    Result<SafetensorsFile> file = SafetensorsFile::Open(options.path);
    if (!file.ok()) return Report(file.status());
  }
  Result<Job> job = FindJob(options, is_folder);
  if (!job.ok()) return Report(job.status());
  Result<OpenedJob> opened = OpenedJob::Open(*job);
  if (!opened.ok()) return Report(opened.status());
  if (opened->plan.data.test_samples == 0)
    return Report(InvalidArgument(fmt::format("{} has no test samples", job->dataset)));
  Result<RunWeights> weights = ReadEvaluated(options, is_folder, opened->plan);
  if (!weights.ok()) return Report(weights.status());
  Result<OpenedDevice> device = OpenDevice(job->device, *job);
  if (!device.ok()) return Report(device.status());
  Result<EvaluationSummary> summary =
      EvaluateSerially(opened->plan, *opened->data, opened->model, weights->flat, device->device());
  if (!summary.ok()) return Report(summary.status());
  PrintEvaluation(options, *weights, opened->plan.layout, *summary);
  return kExitCompleted;
}

}  // namespace

Subcommand AddExportCommand(CLI::App& app) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App& command = DeclareCommand(
      app, "export",
      "Writes a run's weights as one safetensors file with PyTorch's names and layouts: the final\n"
      "ones, or the newest snapshot of a run that has not ended.",
      "Example:\n  pando export runs/first first.safetensors --step 500\n");
  AddOption(command, "RUN_DIR", &options->run_dir, "the run's folder")->required();
  AddOption(command, "OUT OUT.safetensors", &options->output, "the file to write")->required();
  CLI::Option* step =
      AddOption(command, "--step N", &options->step, "the snapshot of this step instead");
  CLI::Option* average =
      command.add_flag("--ema", options->is_averaged,
                       "the average of the weights (optimizer.ema_decay) in the newest snapshot");
  command
      .add_flag("--best", options->is_best,
                "the version of the best test accuracy instead (snapshot.best = true)")
      ->excludes(step)
      ->excludes(average);
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
  AddOption(command, "WEIGHTS RUN_DIR|FILE", &options->path,
            "a run's folder, or a safetensors file; its model and data are those of the "
            "job.toml beside it, of --job, or of the flags")
      ->required();
  AddOption(command, "--job JOB.toml", &options->source.job_path,
            "the job file that says model and data");
  AddModelOptions(command, &options->source);
  AddOption(command, "--step N", &options->step, "the snapshot of this step of the run");
  command.add_flag("--ema", options->is_averaged,
                   "the average of the weights (optimizer.ema_decay) in the run's newest snapshot");
  command.add_flag("--classes", options->lists_classes,
                   "each class's accuracy, and what it is most often taken for");
  command.add_flag("--json", options->is_json, "print the result as JSON");
  return [options] { return Measure(*options); };
}

}  // namespace pando
