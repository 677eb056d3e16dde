// The subcommands that run a job as processes of this machine: train, resume.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "common/exit_codes.h"
#include "job/device_choice.h"
#include "job/run_plan.h"
#include "node/log.h"
#include "node/processes.h"
#include "run/run_folder.h"
#include "run/run_weights.h"
#include "worker/allreduce/allreduce_group.h"

namespace pando {
namespace {

struct RunOptions {
  JobSource source;
  std::string chaos;  // faults to inject
  LocalRunArgs run;   // its job and chaos once they are known
  bool is_serial = false;
  bool is_json = false;
  bool is_dry_run = false;
  bool is_forced = false;
};

constexpr const char* kTrainNotes =
    "Examples:\n"
    "  pando train --epochs 3\n"
    "  pando train job.toml --workers 4 --set optimizer.beta1=0.8\n"
    "  pando train --model mnist-cnn --dataset mnist --data data/mnist --optimizer adam --lr 0.01 "
    "\\\n"
    "              --schedule one-cycle --epochs 3 --workers 2 --servers 2 --json\n"
    "  pando train --chaos \"kill worker at step 100; kill server at step 200\"\n"
    "\n"
    "The run folder (runs/NAME) keeps job.toml, logs, metrics.csv, events.jsonl, summary.json and\n"
    "final.safetensors. docs/job-file.md lists every key that --set reaches.\n\n";

constexpr const char* kResumeNotes =
    "Example:\n"
    "  pando resume runs/first --workers 1 --servers 1\n\n"
    "On several machines start the scheduler by hand instead, with --resume.\n\n";

// ---- what both do -------------------------------------------------------------------------------

Status CheckSupervision(const RunOptions& options, const Job& job) {
  if (job.strategy == Strategy::kAllreduce) return CheckGloo();
  if (options.run.group_restarts == 0) return Status();
  return InvalidArgument(
      "--group-restarts is for --strategy allreduce, where a death ends the group; with servers "
      "each process restarts alone (--max-restarts)");
}

Result<ChaosPlan> MakeChaosPlan(const RunOptions& options, const Job& job, const OpenedJob& opened,
                                uint64_t first_step) {
  if (options.chaos.empty()) return ChaosPlan{};
  const uint32_t server_count = job.strategy == Strategy::kAllreduce ? 0 : job.servers;
  Result<ChaosPlan> plan = ParseChaos(
      options.chaos, {job.workers, server_count, opened.plan.steps.step_count(), first_step});
  const bool is_drawn = plan.ok() && plan->random && options.chaos.find("random:") == std::string::npos;
  if (is_drawn) fmt::print(stderr, "pando: the same faults again: --chaos random:{}\n", plan->random->seed);
  return plan;
}

// The last words of a run.
void PrintSummary(const RunOptions& options, const Summary& summary, const RunFolder& folder) {
  std::string line = fmt::format("pando: {} after {} steps", summary.status, summary.steps);
  if (summary.test_accuracy)
    line += fmt::format(", test accuracy {:.2f} %", 100 * *summary.test_accuracy);
  if (summary.images_per_second > 0)
    line += fmt::format(", {:.0f} images/s", summary.images_per_second);
  if (summary.unverified_micro_batches > 0)
    line += fmt::format(", {} micro-batches not verified", summary.unverified_micro_batches);
  if (!summary.is_reproducible)
    line +=
        ", bits that need not come again (several kinds of workers, allow_nondeterministic, or "
        "codec 1-bit or top-k)";
  if (!summary.failure.empty()) line += ": " + summary.failure;
  fmt::print(stderr, "{}\npando: summary in {}\n", line, folder.SummaryPath());
  if (summary.status != kStatusCompleted && summary.steps > 0) {
    fmt::print(stderr, "pando: continue with: pando resume {} (from step {})\n", folder.path(),
               summary.snapshots.empty() ? 0 : summary.snapshots.back().version.value());
  }
  if (options.is_json) fmt::print("{}", ToJson(summary));
}

int Conclude(const RunOptions& options, const Job& job, const RunFolder& folder, int exit_code) {
  Result<Summary> summary = folder.ReadSummary();
  if (!summary.ok()) return exit_code == kExitCompleted ? Report(summary.status()) : exit_code;
  PrintSummary(options, *summary, folder);
  return ConcludeTimeline(job, folder, exit_code);
}

void AddRunOptions(CLI::App& command, RunOptions* options) {
  command.add_flag("--json", options->is_json, "print the summary to standard output at the end");
  AddMaxRestartsOption(command, &options->run.restarts_max);
  AddOption(command, "--group-restarts N", &options->run.group_restarts,
            "with --strategy allreduce: restarts of the whole group from its last snapshot, "
            "after the death of a worker [0]")
      ->group("Processes and run folder");
  AddOption(command, "--chaos TEXT", &options->chaos,
            "faults to inject: \"kill worker at step 100; stop "
            "server 1 2s at step 200; partition worker 5s every 30s; kill scheduler at step "
            "300\", or random:SEED")
      ->group("Processes and run folder");
  AddVerboseOption(command, &options->run.is_verbose);
}

// ---- train --------------------------------------------------------------------------------------

void WarnOfIdleWorkers(const Job& job) {
  if (job.workers <= job.micro_batches) return;
  fmt::print(stderr,
             "pando: {} workers share {} micro-batches, so {} stay idle; raise --micro-batches\n",
             job.workers, job.micro_batches, job.workers - job.micro_batches);
}

Status CheckStrategy(const RunOptions& options, const Job& job) {
  if (options.is_serial && job.strategy == Strategy::kAllreduce)
    return InvalidArgument(
        "--serial is one process, and --strategy allreduce is several; drop one");
  return CheckSupervision(options, job);
}

int Train(RunOptions options) {
  SetUpLog({.process = "train", .is_verbose = options.run.is_verbose});
  Result<Job> job = ResolveJob(options.source);
  if (!job.ok()) return Report(job.status());
  if (Status s = CheckStrategy(options, *job); !s.ok()) return Report(s);
  const bool is_serial = options.is_serial || job->strategy == Strategy::kSingle;
  // The data set is closed again before anything is measured.
  Result<OpenedJob> opened = MakeRunPlan(*job);
  if (!opened.ok()) return Report(opened.status());
  if (is_serial && !options.chaos.empty()) {
    return Report(
        InvalidArgument("--chaos needs processes to kill, and --serial has none; drop one"));
  }
  Result<ChaosPlan> chaos = MakeChaosPlan(options, *job, *opened, /*first_step=*/0);
  if (!chaos.ok()) return Report(chaos.status());
  if (Status s = CheckTimelinePath(*job); !s.ok()) return Report(s);
  if (options.is_dry_run) {
    fmt::print("{}{}", WriteJobText(*job), RunPlanText(*opened));
    return kExitCompleted;
  }
  if (Status s = CheckMachine(*job, opened->model, opened->plan.steps); !s.ok()) return Report(s);
  if (!is_serial) WarnOfIdleWorkers(*job);
  Result<RunFolder> folder = RunFolder::Create(*job, options.is_forced);
  if (!folder.ok()) return Report(folder.status());
  options.run.job = *job;
  options.run.chaos = *std::move(chaos);
  if (is_serial)
    fmt::print(stderr, "pando: training {} on {}, in this process, in {}\n", job->model,
               job->dataset, folder->path());
  const int exit_code = is_serial ? RunSerial(*job) : RunLocal(options.run);
  return Conclude(options, *job, *folder, exit_code);
}

// ---- resume -------------------------------------------------------------------------------------

// The folder's job, with what the flags change of it. The folder may have been moved.
Result<Job> ReadJob(const RunOptions& options, const RunFolder& folder) {
  JobDraft draft;
  Result<std::string> text = ReadTextFile(folder.JobPath());
  if (!text.ok()) {
    return NotFound(fmt::format("{} holds no run ({}); give the run folder of a pando train",
                                folder.path(), text.status().message()));
  }
  if (Status s = draft.AddToml(*text, folder.JobPath()); !s.ok()) return s;
  PrintWarnings(draft);
  if (Status s = draft.AddOverrides(options.source.overrides); !s.ok()) return s;
  Result<Job> job = draft.Finish();
  if (!job.ok()) return job;
  job->run_dir = folder.path();
  if (Status s = CheckSupervision(options, *job); !s.ok()) return s;
  // The run goes on with servers.
  if (job->strategy == Strategy::kSingle) job->strategy = Strategy::kParameterServers;
  return job;
}

// The run goes on from its newest snapshot, or from the start; earlier steps do not come again.
uint64_t FindFirstStep(const RunFolder& folder) {
  Result<SnapshotManifest> newest = ChooseSnapshot(folder, std::nullopt);
  return newest.ok() ? newest->snapshot.version.value() : 0;
}

int Resume(RunOptions options) {
  SetUpLog({.process = "resume", .is_verbose = options.run.is_verbose});
  const RunFolder folder = RunFolder::Open(options.run.job.run_dir);
  Result<Job> job = ReadJob(options, folder);
  if (!job.ok()) return Report(job.status());
  Result<Summary> before = folder.ReadSummary();
  if (before.ok() && before->status == kStatusCompleted) {
    fmt::print(stderr, "pando: the run in {} is finished; there is nothing to resume\n",
               folder.path());
    PrintSummary(options, *before, folder);
    return kExitCompleted;
  }
  Result<OpenedJob> opened = MakeRunPlan(*job);
  if (!opened.ok()) return Report(opened.status());
  if (Status s = CheckTimelinePath(*job); !s.ok()) return Report(s);
  if (Status s = CheckMachine(*job, opened->model, opened->plan.steps); !s.ok()) return Report(s);
  Result<ChaosPlan> chaos = MakeChaosPlan(options, *job, *opened, FindFirstStep(folder));
  if (!chaos.ok()) return Report(chaos.status());
  if (Result<RunFolder> reopened = RunFolder::Reopen(*job); !reopened.ok())
    return Report(reopened.status());
  options.run.job = *job;
  options.run.chaos = *std::move(chaos);
  options.run.is_resumed = true;
  const int exit_code = RunLocal(options.run);
  return exit_code == kExitFenced ? exit_code : Conclude(options, *job, folder, exit_code);
}

}  // namespace

Subcommand AddTrainCommand(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  CLI::App& command = DeclareCommand(
      app, "train",
      "Trains a model on this machine: starts scheduler, servers and workers as processes,\n"
      "shows the progress and writes a run folder.",
      std::string(kTrainNotes) + kChaosHelp);
  AddJobOptions(command, &options->source);
  command.add_flag("--serial", options->is_serial,
                   "the same job in one process, without network: same weights");
  command.add_flag("--dry-run", options->is_dry_run,
                   "print the resolved job and the plan, train nothing");
  command.add_flag("--force", options->is_forced, "overwrite the run that the run folder holds");
  AddRunOptions(command, options.get());
  return [options] { return Train(*options); };
}

Subcommand AddResumeCommand(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  CLI::App& command = DeclareCommand(
      app, "resume",
      "Continues a run whose processes are all gone, from its last snapshot to the same weights,\n"
      "on this machine, with the numbers of processes in its job file or the flags.",
      std::string(kResumeNotes) + kChaosHelp);
  AddOption(command, "RUN_DIR", &options->run.job.run_dir, "the run's folder")->required();
  AddResumeOptions(command, &options->source);
  AddRunOptions(command, options.get());
  return [options] { return Resume(*options); };
}

}  // namespace pando
