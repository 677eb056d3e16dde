// The subcommands that run a job with processes of this machine: train, resume.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/extend_run.h"
#include "cli/program_choice.h"
#include "cli/watch/viewer.h"
#include "common/exit_codes.h"
#include "common/output.h"
#include "common/system.h"
#include "job/device_choice.h"
#include "job/job_file.h"
#include "job/run_plan.h"
#include "node/log.h"
#include "node/processes.h"
#include "plan/external_model.h"
#include "run/run_folder.h"
#include "run/run_weights.h"
#include "run/sqlite_journal.h"
#include "worker/allreduce/allreduce_group.h"

namespace pando {
namespace {

struct RunOptions {
  JobSource source;
  std::string chaos;  // faults to inject
  LocalRunArgs run;   // job and chaos are set once they are known
  bool is_serial = false;
  bool is_json = false;
  bool is_dry_run = false;
  FolderChoice folder;
  std::string http;          // --http
  std::string extended_dir;  // for a resumed run that gets another length
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
    "Examples:\n"
    "  pando resume runs/first --workers 1 --servers 1 --set snapshot.every=100\n"
    "  pando resume runs/first --epochs 20 --run-dir runs/longer\n\n"
    "On several machines start the scheduler by hand instead, with --resume.\n\n";

// ---- parts of both ------------------------------------------------------------------------------

Status CheckSupervision(const RunOptions& options, const Job& job) {
  if (job.strategy == Strategy::kAllreduce) return CheckGloo();
  if (options.run.group_restarts == 0) return Status();
  return InvalidArgument(
      "--group-restarts is for --strategy allreduce, where a death ends the group; with servers "
      "each process restarts alone (--max-restarts)");
}

Result<ChaosPlan> MakeChaosPlan(const RunOptions& options, const Job& job, const JobPlan& run,
                                uint64_t first_step) {
  if (options.chaos.empty()) return ChaosPlan{};
  const uint32_t server_count = job.strategy == Strategy::kAllreduce ? 0 : job.servers;
  Result<ChaosPlan> plan =
      ParseChaos(options.chaos, {job.workers, server_count, run.steps.step_count(), first_step});
  const bool is_drawn =
      plan.ok() && plan->random && options.chaos.find("random:") == std::string::npos;
  if (is_drawn) Say("pando: the same faults again: --chaos random:{}\n", plan->random->seed);
  return plan;
}

void AddRunOptions(CLI::App& command, RunOptions* options) {
  AddFlag(command, "--json", &options->is_json, "print the summary to standard output at the end");
  AddMaxRestartsOption(command, &options->run.restarts_max);
  AddOption(command, "--group-restarts N", &options->run.group_restarts,
            "with --strategy allreduce: restarts of the whole group from its last snapshot, "
            "after the death of a worker [0]")
      .Group("Processes and run folder");
  AddOption(command, "--chaos TEXT", &options->chaos,
            "faults to inject: \"kill worker at step 100; stop "
            "server 1 2s at step 200; partition worker 5s every 30s; kill scheduler at step "
            "300\", or random:SEED")
      .Group("Processes and run folder");
  AddHttpOption(command, &options->http);
  AddOwnKeysOption(command, &options->run.keys_folder);
  AddVerboseOption(command, &options->run.is_verbose);
}

// ---- train --------------------------------------------------------------------------------------

void WarnOfWarmup(const JobPlan& plan) {
  if (plan.job.schedule.warmup_steps < plan.steps.step_count()) return;
  Say("pando: schedule.warmup_steps = {}, and the run has {} steps: it does not reach its "
      "learning rate\n",
      plan.job.schedule.warmup_steps, plan.steps.step_count());
}

void WarnOfIdleWorkers(const Job& job) {
  if (job.workers <= job.micro_batches) return;
  Say("pando: {} workers share {} micro-batches, so {} stay idle; raise --micro-batches\n",
      job.workers, job.micro_batches, job.workers - job.micro_batches);
}

void WarnOfOneServer(const Job& job) {
  if (job.strategy != Strategy::kParameterServers || job.servers > 1 || job.replicas == 1) return;
  Say("pando: one server has no second one for replicas (run.replicas = {}): after its death the "
      "run goes back to the last snapshot; --servers 2 loses nothing\n",
      job.replicas);
}

Status CheckStrategy(const RunOptions& options, const Job& job) {
  if (options.is_serial && job.strategy == Strategy::kAllreduce)
    return InvalidArgument(
        "--serial is one process, and --strategy allreduce is several; drop one");
  return CheckSupervision(options, job);
}

Result<int> Train(RunOptions options) {
  SetUpLog({.process = "train", .is_verbose = options.run.is_verbose});
  PANDO_ASSIGN_OR_RETURN(Job job, ResolveJob(options.source));
  PANDO_RETURN_IF_ERROR(CheckStrategy(options, job));
  const bool is_serial = options.is_serial || job.strategy == Strategy::kSingle;
  if (!is_serial) PANDO_RETURN_IF_ERROR(CheckFilesOfScheduler(job));
  // The data set is closed again before anything is measured.
  PANDO_ASSIGN_OR_RETURN(OpenedJob opened, MakeRunPlan(job));
  if (is_serial && !options.chaos.empty()) {
    return InvalidArgument("--chaos needs processes to kill, and --serial has none; drop one");
  }
  PANDO_ASSIGN_OR_RETURN(ChaosPlan chaos,
                         MakeChaosPlan(options, job, opened.plan, /*first_step=*/0));
  PANDO_RETURN_IF_ERROR(CheckTimelinePath(job));
  PANDO_ASSIGN_OR_RETURN(std::optional<InitialWeights> initial, FindInitialWeights(opened, &job));
  if (options.is_dry_run) {
    Print("{}{}", WriteJobText(job), RunPlanText(opened));
    return kExitCompleted;
  }
  PANDO_RETURN_IF_ERROR(CheckMachine(job, opened.model, opened.plan.steps));
  if (!is_serial) WarnOfIdleWorkers(job);
  if (!is_serial) WarnOfOneServer(job);
  WarnOfWarmup(opened.plan);
  PANDO_ASSIGN_OR_RETURN(RunFolder folder, options.folder.Create(job));
  if (initial) PANDO_RETURN_IF_ERROR(KeepInitialWeights(*initial, folder, opened.plan));
  initial.reset();
  for (const std::string& line : DataLines(opened)) Say("pando: {}\n", line);
  options.run.job = job;
  options.run.chaos = std::move(chaos);
  if (is_serial)
    Say("pando: training {} on {}, in this process, in {}\n", job.model, job.dataset,
        folder.path());
  PANDO_ASSIGN_OR_RETURN(const auto viewer,
                         StartViewer(options.http, job, options.run.keys_folder));
  const int exit_code = is_serial ? RunSerial(job) : RunLocal(options.run);
  return ConcludeRun(job, folder, options.is_json, exit_code);
}

// ---- resume -------------------------------------------------------------------------------------

// Refuses other values of keys that decide the weights. Data may have moved, and another length
// extends the run.
Status CheckForResume(const std::vector<JobDraft::Override>& overrides) {
  for (const JobDraft::Override& override : overrides) {
    const JobKey* key = FindJobKey(override.key);
    if (key == nullptr || key->name == "data.path" || IsLengthKey(*key)) continue;
    const bool is_fixed = key->name.starts_with("model.init") || key->name == "run.dir" ||
                          key->name == "run.name" || IsIdentityKey(*key);
    if (!is_fixed) continue;
    return InvalidArgument(
        fmt::format("{}: {} is part of what the run is, and a resumed run goes on as it began; "
                    "start another run with pando train",
                    override.where, override.key));
  }
  return Status();
}

// Reads the folder's job, and applies the flags. The folder may have moved.
Result<Job> ReadJob(const RunOptions& options, const RunFolder& folder) {
  JobDraft draft;
  Result<std::string> text = ReadTextFile(folder.JobPath());
  if (!text.ok()) {
    return NotFound(fmt::format("{} holds no run ({}); give the run folder of a pando train",
                                folder.path(), text.status().message()));
  }
  PANDO_RETURN_IF_ERROR(draft.AddToml(*text, folder.JobPath()));
  PANDO_RETURN_IF_ERROR(CheckForResume(options.source.overrides));
  PANDO_RETURN_IF_ERROR(draft.AddOverrides(options.source.overrides));
  PANDO_ASSIGN_OR_RETURN(Job job, draft.Finish());
  job.run_dir = folder.path();
  PANDO_RETURN_IF_ERROR(CheckSupervision(options, job));
  // The run continues with servers.
  if (job.strategy == Strategy::kSingle) job.strategy = Strategy::kParameterServers;
  PANDO_RETURN_IF_ERROR(CheckFilesOfScheduler(job));
  return job;
}

// Returns the step from which the run continues: that of its newest snapshot, or 0.
uint64_t FindFirstStep(const RunFolder& folder) {
  Result<SnapshotManifest> newest = ChooseSnapshot(folder, std::nullopt);
  return newest.ok() ? newest->snapshot.version.value() : 0;
}

// Checks the journal before the folder is changed. Without it a run would begin again, and would
// remove the snapshots as another run's. Other faults show when the scheduler opens the journal.
Status CheckJournal(const RunFolder& folder) {
  PANDO_RETURN_IF_ERROR(CheckJournalIsHere(folder.path()));
  const Status journal = SqliteJournal::Check(folder.JournalPath());
  if (journal.code() == StatusCode::kCorrupt) return journal;
  if (journal.code() != StatusCode::kNotFound) return Status();
  const Result<SnapshotManifest> newest = ChooseSnapshot(folder, std::nullopt);
  if (!newest.ok()) return Status();
  return NotFound(fmt::format(
      "{}, and {} has a snapshot of step {}: a run goes on from both. Bring it back; `pando export "
      "{} FILE` reads the snapshot, and pando train --init FILE starts from it; pando train "
      "--force begins again",
      journal.message(), folder.SnapshotsPath(), newest->snapshot.version.value(), folder.path()));
}

// Plans a run of a program, which has the model and the data and decides the length.
Result<JobPlan> PlanOfProgram(const Job& job, bool is_extended) {
  if (!IsDeclared(job))
    return NotFound(
        "no program had declared its model when this run ended; start it with pando run");
  if (is_extended)
    return InvalidArgument(
        "--steps and --epochs: the program says how long this run is; start another run with pando "
        "run, from the weights of this one");
  return ExternalPlan(job);
}

Result<JobPlan> PlanForResume(const Job& job, bool is_extended) {
  if (IsExternal(job)) return PlanOfProgram(job, is_extended);
  PANDO_ASSIGN_OR_RETURN(OpenedJob opened, MakeRunPlan(job));
  PANDO_RETURN_IF_ERROR(CheckMachine(job, opened.model, opened.plan.steps));
  return opened.plan;
}

bool HasLength(const RunOptions& options) {
  return std::ranges::any_of(options.source.overrides, [](const JobDraft::Override& override) {
    const JobKey* key = FindJobKey(override.key);
    return key != nullptr && IsLengthKey(*key);
  });
}

// Returns whether the flags make the run longer. If they give its present length, the job keeps its
// form. kInvalidArgument: they make it shorter.
Result<bool> IsLonger(const RunFolder& folder, const Job& kept, const JobPlan& plan, Job* job) {
  const uint64_t before = JobPlan(kept, plan.data, plan.layout).steps.step_count();
  const uint64_t wanted = plan.steps.step_count();
  if (wanted < before) {
    return InvalidArgument(
        fmt::format("the run in {} is of {} steps, and would be of {}; give more (--steps, "
                    "--epochs)",
                    folder.path(), before, wanted));
  }
  if (wanted > before) return true;
  job->steps = kept.steps;
  job->epochs = kept.epochs;
  return false;
}

// Checks that everything except the length is as it was at the beginning of the run.
Status CheckBeginning(const RunFolder& folder, const Job& kept, Job job,
                      uint64_t data_fingerprint) {
  job.steps = kept.steps;
  job.epochs = kept.epochs;
  return folder.CheckIdentity(job, data_fingerprint);
}

// Returns whether the run has completed, and then prints its result.
bool TellCompleted(const RunFolder& folder, const RunOptions& options) {
  const Result<Summary> before = folder.ReadSummary();
  if (!before.ok() || before->status != kStatusCompleted) return false;
  Say("pando: the run in {} is finished; there is nothing to resume\n", folder.path());
  PrintSummary(*before, folder);
  if (options.is_json) Print("{}", ToJson(*before));
  return true;
}

Result<int> Resume(RunOptions options) {
  SetUpLog({.process = "resume", .is_verbose = options.run.is_verbose});
  RunFolder folder = RunFolder::Open(options.run.job.run_dir);
  PANDO_ASSIGN_OR_RETURN(Job job, ReadJob(options, folder));
  const bool has_length = HasLength(options);
  if (!has_length && options.extended_dir.empty() && TellCompleted(folder, options))
    return kExitCompleted;
  PANDO_ASSIGN_OR_RETURN(const JobPlan plan, PlanForResume(job, has_length));
  PANDO_ASSIGN_OR_RETURN(const Job kept, JobOfRun(folder, job.data_path));
  PANDO_ASSIGN_OR_RETURN(const bool is_extended, IsLonger(folder, kept, plan, &job));
  if (!is_extended && !options.extended_dir.empty())
    return InvalidArgument(
        "--run-dir is for a run that gets another length: give --steps or --epochs too");
  if (!is_extended && TellCompleted(folder, options)) return kExitCompleted;
  if (IsExternal(job)) {
    PANDO_ASSIGN_OR_RETURN(options.run.worker, FindProgram(job.command));
    options.run.worker.is_preloaded = job.preload;
  }
  PANDO_RETURN_IF_ERROR(CheckBeginning(folder, kept, job, plan.data.fingerprint));
  PANDO_RETURN_IF_ERROR(CheckJournal(folder));
  PANDO_RETURN_IF_ERROR(CheckTimelinePath(job));
  PANDO_ASSIGN_OR_RETURN(ChaosPlan chaos, MakeChaosPlan(options, job, plan, FindFirstStep(folder)));
  if (is_extended) {
    PANDO_ASSIGN_OR_RETURN(folder, ExtendRun(folder, options.extended_dir, plan, &job));
  }
  PANDO_RETURN_IF_ERROR(RunFolder::Reopen(job).status());
  options.run.job = job;
  options.run.chaos = std::move(chaos);
  options.run.is_resumed = true;
  return RunToEnd(std::move(options.run), std::move(folder),
                  {.is_json = options.is_json, .http = options.http});
}

}  // namespace

Result<int> ConcludeRun(const Job& job, const RunFolder& folder, bool is_json, int exit_code) {
  Result<Summary> summary = folder.ReadSummary();
  if (!summary.ok()) return exit_code == kExitCompleted ? summary.status() : Result<int>(exit_code);
  PrintSummary(*summary, folder);
  if (is_json) Print("{}", ToJson(*summary));
  return ConcludeTimeline(job, folder, exit_code);
}

Subcommand AddTrainCommand(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  CLI::App& command = DeclareCommand(
      app, "train",
      "Trains a model on this machine: starts scheduler, servers and workers as processes,\n"
      "shows the progress and writes a run folder.",
      std::string(kTrainNotes) + kChaosHelp);
  AddJobOptions(command, &options->source);
  AddFlag(command, "--serial", &options->is_serial,
          "the same job in one process, without network: same weights");
  AddFlag(command, "--dry-run", &options->is_dry_run,
          "print the resolved job and the plan, train nothing");
  AddFolderOptions(command, &options->folder);
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
  AddOption(command, "RUN_DIR", &options->run.job.run_dir, "the run's folder").Required();
  AddResumeOptions(command, &options->source);
  AddPreloadOption(command, &options->source);
  AddOption(command, "--run-dir NEW", &options->extended_dir,
            "with --steps or --epochs, which extend the run from its last snapshot: the folder of "
            "the longer run; RUN_DIR stays as it is [RUN_DIR-to-STEPS]");
  AddRunOptions(command, options.get());
  return [options] { return Resume(*options); };
}

}  // namespace pando
