// `pando run`: trains a program's model with processes on this machine.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/program_choice.h"
#include "cli/watch/viewer.h"
#include "common/exit_codes.h"
#include "common/output.h"
#include "job/job_file.h"
#include "node/log.h"
#include "node/processes.h"
#include "plan/external_model.h"
#include "run/run_folder.h"

namespace pando {
namespace {

struct ProgramOptions {
  JobSource source;
  std::string chaos;
  LocalRunArgs run;
  ProgramRun how;
  bool is_attached = false;
  std::string logs = EnumName(ShownLogs::kFirst);  // --logs
};

constexpr const char* kRunNotes =
    "PROGRAM computes the gradients: a Python script that calls pando_train.join "
    "(docs/pytorch.md),\n"
    "or any program over libpando_worker.so (embed/pando_worker.h). It says what is trained; the\n"
    "flags say with which processes.\n\n"
    "Examples:\n"
    "  pando run --workers 4 --servers 2 train.py --epochs 30\n"
    "  pando run --chaos \"kill worker at step 100\" -- venv/bin/python train.py\n\n"
    "On several machines: pando scheduler with model.name and data.name external, then\n"
    "pando node --join ENDPOINT -- python3 train.py on each.\n\n";

// Returns the name for the run folder, for example "train" for "train.py".
std::string NameFor(const std::vector<std::string>& command) {
  for (const std::string& word : command) {
    if (word.ends_with(".py")) return std::filesystem::path(word).stem().string();
  }
  return std::filesystem::path(command[0]).filename().string();
}

Result<Job> JobFor(const ProgramOptions& options, const std::vector<std::string>& command) {
  JobDraft draft;
  PANDO_RETURN_IF_ERROR(RefuseProgramKeys(options.source, IsIdentityKey));
  PANDO_RETURN_IF_ERROR(draft.AddOverrides(options.source.overrides));
  draft.SetDefault("model.name", std::string(kExternalName));
  draft.SetDefault("data.name", std::string(kExternalName));
  const std::vector<std::string> absolute = AbsoluteCommand(command);  // a folder may not be UTF-8
  PANDO_RETURN_IF_ERROR(CheckJobValue(*FindJobKey("run.command"), absolute));
  draft.SetDefault("run.command", absolute);
  if (options.is_attached) draft.SetDefault("run.workers", uint64_t{1});
  PANDO_ASSIGN_OR_RETURN(Job job, draft.Finish());
  job.model = NameFor(command.empty() ? std::vector<std::string>{"attached"} : command);
  ResolveRunNames(std::chrono::system_clock::now(), &job);
  job.model = kExternalName;
  return job;
}

Result<ChaosPlan> ChaosFor(const std::string& text, const Job& job) {
  constexpr uint64_t kAnyStep = uint64_t{1} << 40;  // the program says how many there are
  if (text.empty()) return ChaosPlan{};
  return ParseChaos(text, {job.workers, job.servers, kAnyStep, /*first_step=*/0});
}

Result<int> RunPrograms(ProgramOptions options, const std::vector<std::string>& command) {
  SetUpLog({.process = "run", .is_verbose = options.run.is_verbose});
  if (options.is_attached && !command.empty())
    return InvalidArgument("--attach starts no program; leave '" + command[0] + "' out");
  if (options.is_attached == options.run.attach_file.empty())
    return InvalidArgument(
        "--attach and --endpoint-file go together: without a program to start, the "
        "file says where workers join");
  if (!options.is_attached) {
    PANDO_ASSIGN_OR_RETURN(options.run.worker, FindProgram(command));
  }
  PANDO_ASSIGN_OR_RETURN(options.run.job, JobFor(options, command));
  if (options.is_attached && options.run.job.preload)
    return InvalidArgument("--attach starts no program; leave --preload out");
  options.run.worker.is_preloaded = options.run.job.preload;
  options.run.shown_logs = *ParseEnum<ShownLogs>(options.logs);
  PANDO_RETURN_IF_ERROR(CheckTimelinePath(options.run.job));
  PANDO_ASSIGN_OR_RETURN(options.run.chaos, ChaosFor(options.chaos, options.run.job));
  PANDO_ASSIGN_OR_RETURN(RunFolder folder, options.how.folder.Create(options.run.job));
  return RunToEnd(std::move(options.run), std::move(folder), options.how);
}

// Returns the job of the script's next run, which has another model and its own folder.
Job NextJob(const Job& run) {
  namespace fs = std::filesystem;
  std::error_code ignored;  // an unreadable folder shows when it is created
  Job job;
  for (const JobKey& key : JobKeys()) {
    const bool is_declared = IsIdentityKey(key) && !key.name.ends_with(".name");
    if (!is_declared) key.set(job, key.get(run));
  }
  job.timeline.clear();  // the file has the first run's trace
  job.earlier.push_back(
      (fs::absolute(run.run_dir, ignored) / ".").lexically_normal().parent_path());
  size_t number = job.earlier.size();
  do {
    job.run_dir = fmt::format("{}-{}", job.earlier[0], ++number);
  } while (fs::exists(job.run_dir, ignored));
  job.name = fs::path(job.run_dir).filename();
  return job;
}

}  // namespace

Result<int> RunToEnd(LocalRunArgs run, RunFolder folder, const ProgramRun& how) {
  const WorkerProgram program = run.worker;
  while (true) {
    run.worker = program;
    run.worker.variables.push_back(
        fmt::format("PANDO_EARLIER_RUNS={}", fmt::join(run.job.earlier, "\n")));
    PANDO_ASSIGN_OR_RETURN(const auto viewer, StartViewer(how.http, run.job, run.keys_folder));
    const int exit_code = RunLocal(run);
    if (exit_code == kExitFenced) return exit_code;
    const bool has_next = exit_code == kExitNextRun;
    const Result<int> concluded =
        ConcludeRun(run.job, folder, how.is_json, has_next ? kExitCompleted : exit_code);
    if (!has_next || !concluded.ok() || *concluded != kExitCompleted) return concluded;
    run.job = NextJob(run.job);
    run.is_resumed = false;
    PANDO_ASSIGN_OR_RETURN(folder, how.folder.Create(run.job));
    Say("pando: starting the script again from its top, for its run {}\n",
        run.job.earlier.size() + 1);
  }
}

Subcommand AddRunCommand(CLI::App& app, const std::vector<std::string>& program) {
  auto options = std::make_shared<ProgramOptions>();
  CLI::App& command = DeclareCommand(
      app, "run",
      "Trains the model of a program on this machine: starts scheduler and servers, and the "
      "program\n"
      "as each worker, keeps them running, shows the progress and writes a run folder.",
      std::string(kRunNotes) + kChaosHelp);
  AddProgramOptions(command, &options->source);
  AddFlag(command, "--json", &options->how.is_json,
          "print the summary to standard output at the end");
  AddFolderOptions(command, &options->how.folder);
  AddMaxRestartsOption(command, &options->run.restarts_max);
  AddOption(command, "--chaos TEXT", &options->chaos, "faults to inject");
  AddFlag(command, "--attach", &options->is_attached,
          "start no workers: programs join by themselves");
  AddOption(command, "--endpoint-file FILE", &options->run.attach_file,
            "with --attach: where to write the scheduler's endpoint; may be a pipe under /dev/fd");
  AddPreloadOption(command, &options->source);
  AddOption(
      command, "--logs WHICH", &options->logs,
      "whose prints are shown here, beside its log in RUN_DIR/logs: first, all or none [first]",
      AnyWordFrom({"first", "all", "none"}));
  AddHttpOption(command, &options->how.http);
  AddOwnKeysOption(command, &options->run.keys_folder);
  AddVerboseOption(command, &options->run.is_verbose);
  StopAtRest(command);
  return [options, &command, program]() -> Result<int> {
    PANDO_ASSIGN_OR_RETURN(const std::vector<std::string> words,
                           ProgramWords(RemainingWords(command), program));
    return RunPrograms(*options, words);
  };
}

}  // namespace pando
