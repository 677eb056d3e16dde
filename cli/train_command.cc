#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "common/exit_codes.h"
#include "job/device_choice.h"
#include "job/run_plan.h"
#include "node/local_run.h"
#include "node/log.h"
#include "node/processes.h"
#include "run/run_folder.h"

namespace pando {
namespace {

struct TrainOptions {
  JobSource source;
  SupervisionOptions supervision;
  bool is_serial = false;
  bool is_json = false;
  bool is_dry_run = false;
  bool is_forced = false;
  bool is_verbose = false;
};

constexpr const char* kExamples =
    "Examples:\n"
    "  pando train --epochs 3\n"
    "  pando train job.toml --workers 4 --set optimizer.beta1=0.8\n"
    "  pando train --model mnist-cnn --dataset mnist --data data/mnist --optimizer adam --lr 0.01 "
    "\\\n"
    "              --schedule one-cycle --epochs 3 --workers 2 --servers 2 --json\n"
    "  pando train --chaos \"kill worker at step 100; kill server at step 200\"\n"
    "\n"
    "The run folder (runs/NAME) keeps job.toml, logs, metrics.csv, events.jsonl, summary.json and\n"
    "final.safetensors. docs/job-file.md lists every key that --set reaches.\n";

void WarnOfIdleWorkers(const Job& job) {
  if (job.workers <= job.micro_batches) return;
  fmt::print(stderr,
             "pando: {} workers share {} micro-batches, so {} stay idle; raise --micro-batches\n",
             job.workers, job.micro_batches, job.workers - job.micro_batches);
}

int PrintPlan(const Job& job, const RunPlan& plan) {
  fmt::print("{}{}", WriteJobText(job), RunPlanText(job, plan));
  return kExitCompleted;
}

Status CheckStrategy(const TrainOptions& options, const Job& job) {
  if (options.is_serial && job.strategy == Strategy::kAllreduce)
    return InvalidArgument(
        "--serial is one process, and --strategy allreduce is several; drop one");
  return CheckSupervision(options.supervision, job);
}

Result<ChaosPlan> ChaosOf(const TrainOptions& options, bool is_serial, const Job& job,
                          uint64_t step_count) {
  const std::string& text = options.supervision.chaos;
  if (text.empty()) return ChaosPlan{};
  const uint32_t server_count = job.strategy == Strategy::kAllreduce ? 0 : job.servers;
  if (is_serial) {
    return InvalidArgument("--chaos needs processes to kill, and --serial has none; drop one");
  }
  return ParseChaos(text, {job.workers, server_count, step_count});
}

int Train(const TrainOptions& options) {
  SetUpLog({.process = "train", .is_verbose = options.is_verbose, .file = ""});
  Result<Job> job = ResolveJob(options.source);
  if (!job.ok()) return Report(job.status());
  if (Status s = CheckStrategy(options, *job); !s.ok()) return Report(s);
  const bool is_serial = options.is_serial || job->strategy == Strategy::kSingle;
  // The data set is closed again before anything is measured.
  Result<RunPlan> plan = MakeRunPlan(*job);
  if (!plan.ok()) return Report(plan.status());
  Result<ChaosPlan> chaos = ChaosOf(options, is_serial, *job, plan->steps.step_count());
  if (!chaos.ok()) return Report(chaos.status());
  if (Status s = CheckTimelinePath(*job); !s.ok()) return Report(s);
  if (options.is_dry_run) return PrintPlan(*job, *plan);
  if (Status s = CheckMachine(*job, plan->model, plan->steps); !s.ok()) return Report(s);
  if (!is_serial) WarnOfIdleWorkers(*job);
  Result<RunFolder> folder = RunFolder::Create(*job, options.is_forced);
  if (!folder.ok()) return Report(folder.status());
  const int exit_code = is_serial ? RunSerial({.job = *job, .run_dir = folder->path()})
                                  : RunLocal({.job = *job,
                                              .folder = *folder,
                                              .step_count = plan->steps.step_count(),
                                              .chaos = *chaos,
                                              .restarts_max = options.supervision.restarts_max,
                                              .group_restarts = options.supervision.group_restarts,
                                              .is_verbose = options.is_verbose});
  Result<Summary> summary = folder->ReadSummary();
  if (!summary.ok()) return exit_code == kExitCompleted ? Report(summary.status()) : exit_code;
  PrintOutcome(*summary, *folder);
  if (options.is_json) fmt::print("{}", ToJson(*summary));
  return ConcludeTimeline(*job, *folder, exit_code);
}

}  // namespace

Subcommand AddTrainCommand(CLI::App& app) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App& command = *app.add_subcommand(
      "train",
      "Trains a model on this machine: starts scheduler, servers and workers as processes,\n"
      "shows the progress and writes a run folder.");
  AddJobOptions(command, &options->source);
  command.add_flag("--serial", options->is_serial,
                   "the same job in one process, without network: same weights");
  command.add_flag("--dry-run", options->is_dry_run,
                   "print the resolved job and the plan, train nothing");
  command.add_flag("--force", options->is_forced, "overwrite the run that the run folder holds");
  command.add_flag("--json", options->is_json, "print the summary to standard output at the end");
  AddSupervisionOptions(command, &options->supervision);
  AddVerboseOption(command, &options->is_verbose);
  command.footer(std::string("\n") + kExamples + "\n" + kChaosHelp + "\n" + kExitCodesHelp);
  return [options] { return Train(*options); };
}

}  // namespace pando
