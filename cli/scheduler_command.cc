#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "common/exit_codes.h"
#include "node/log.h"
#include "node/processes.h"
#include "run/run_folder.h"

namespace pando {
namespace {

struct SchedulerOptions {
  JobSource source;
  std::string bind = "tcp://127.0.0.1:7070";
  std::string endpoint_file;
  std::string prepared_run_dir;  // made by `pando train`
  bool is_resumed = false;
  bool is_insecure = false;
  bool is_forced = false;
  bool is_verbose = false;
};

// A scheduler that a user restarts continues its run.
Result<RunFolder> MakeFolder(const SchedulerOptions& options, const Job& job) {
  if (!options.prepared_run_dir.empty()) return RunFolder::Open(options.prepared_run_dir);
  if (options.is_resumed) {
    if (RunFolder::HoldsUnfinished(job)) return RunFolder::Reopen(job);
    return NotFound(fmt::format(
        "{} holds no unfinished run of this job; give the job file of a run folder", job.run_dir));
  }
  if (!options.is_forced && RunFolder::HoldsUnfinished(job)) {
    fmt::print(stderr, "pando: continuing the run in {}\n", job.run_dir);
    return RunFolder::Open(job.run_dir);
  }
  return RunFolder::Create(job, options.is_forced);
}

int Schedule(const SchedulerOptions& options) {
  if (Status s = CheckBind(options.bind, options.is_insecure); !s.ok()) return Report(s);
  Result<Job> job = ResolveJob(options.source);
  if (!job.ok()) return Report(job.status());
  if (options.prepared_run_dir.empty()) {
    if (Status s = CheckTimelinePath(*job); !s.ok()) return Report(s);
  }
  Result<RunFolder> folder = MakeFolder(options, *job);
  if (!folder.ok()) return Report(folder.status());
  SetUpLog({.process = "scheduler",
            .is_verbose = options.is_verbose,
            .file = folder->LogPath("scheduler")});
  const int exit_code = RunScheduler({.job = *job,
                                      .bind = options.bind,
                                      .insecure = options.is_insecure,
                                      .run_dir = folder->path(),
                                      .endpoint_file = options.endpoint_file,
                                      .is_resumed = options.is_resumed});
  const bool is_ours = options.prepared_run_dir.empty() && exit_code != kExitFenced;
  return is_ours ? ConcludeTimeline(*job, *folder, exit_code) : exit_code;
}

}  // namespace

Subcommand AddSchedulerCommand(CLI::App& app) {
  auto options = std::make_shared<SchedulerOptions>();
  CLI::App& command = *app.add_subcommand(
      "scheduler",
      "Starts a run and leads it: waits for run.servers servers and run.workers workers to join,\n"
      "assigns the work, shows the progress, writes the run folder.");
  AddJobOptions(command, &options->source);
  command.add_option("--bind", options->bind, fmt::format("where to listen [{}]", options->bind))
      ->type_name("ENDPOINT");
  command.add_flag("--insecure", options->is_insecure,
                   "allow --bind beyond this machine, without encryption");
  command.add_flag("--force", options->is_forced, "overwrite the run that the run folder holds");
  command
      .add_option("--endpoint-file", options->endpoint_file,
                  "write the endpoint to this file once it listens (for port 0)")
      ->type_name("PATH");
  command.add_option("--prepared-run-dir", options->prepared_run_dir)->group("");
  command.add_flag("--resume", options->is_resumed,
                   "continue a run whose processes are all gone, from its last snapshot");
  AddVerboseOption(command, &options->is_verbose);
  command.footer(std::string("\nExample, one line per terminal:\n"
                             "  pando scheduler job.toml --bind tcp://127.0.0.1:7070\n"
                             "  pando server --join tcp://127.0.0.1:7070\n"
                             "  pando worker --join tcp://127.0.0.1:7070\n\n"
                             "After a power cut, for servers and workers of several machines:\n"
                             "  pando scheduler runs/first/job.toml --resume --bind "
                             "tcp://10.0.0.1:7070 --insecure\n\n"
                             "A scheduler that died alone is restarted without --resume: "
                             "training has continued.\n\n") +
                 kExitCodesHelp);
  return [options] { return Schedule(*options); };
}

}  // namespace pando
