#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "common/exit_codes.h"
#include "job/device_choice.h"
#include "job/run_plan.h"
#include "node/local_run.h"
#include "node/log.h"
#include "run/run_weights.h"

namespace pando {
namespace {

struct ResumeOptions {
  std::string run_dir;
  JobSource source;
  SupervisionOptions supervision;
  bool is_json = false;
  bool is_verbose = false;
};

// The folder's job, with what the flags change of it. The folder may have been moved.
Result<Job> JobOf(const ResumeOptions& options, const RunFolder& folder) {
  JobDraft draft;
  Result<std::string> text = ReadTextFile(folder.JobPath());
  if (!text.ok()) {
    return NotFound(fmt::format("{} holds no run ({}); give the run folder of a pando train",
                                options.run_dir, text.status().message()));
  }
  if (Status s = draft.AddToml(*text, folder.JobPath()); !s.ok()) return s;
  PrintWarnings(draft);
  if (Status s = draft.AddOverrides(options.source.overrides); !s.ok()) return s;
  Result<Job> job = draft.Finish();
  if (!job.ok()) return job;
  job->run_dir = options.run_dir;
  if (Status s = CheckSupervision(options.supervision, *job); !s.ok()) return s;
  // A single process stores no snapshots: the run begins again, with servers.
  if (job->strategy == Strategy::kSingle) job->strategy = Strategy::kParameterServers;
  return job;
}

int PrintSummary(const ResumeOptions& options, const Summary& summary, const RunFolder& folder) {
  PrintOutcome(summary, folder);
  if (options.is_json) fmt::print("{}", ToJson(summary));
  return kExitCompleted;
}

// The run goes on from its newest snapshot, or from the start; earlier steps do not come again.
uint64_t FirstStep(const RunFolder& folder) {
  Result<SnapshotManifest> newest = ChooseSnapshot(folder, std::nullopt);
  return newest.ok() ? newest->snapshot.version.value() : 0;
}

int Resume(const ResumeOptions& options) {
  SetUpLog({.process = "resume", .is_verbose = options.is_verbose, .file = ""});
  const RunFolder folder = RunFolder::Open(options.run_dir);
  Result<Job> job = JobOf(options, folder);
  if (!job.ok()) return Report(job.status());
  Result<Summary> before = folder.ReadSummary();
  if (before.ok() && before->status == kStatusCompleted) {
    fmt::print(stderr, "pando: the run in {} is finished; there is nothing to resume\n",
               options.run_dir);
    return PrintSummary(options, *before, folder);
  }
  Result<RunPlan> plan = MakeRunPlan(*job);
  if (!plan.ok()) return Report(plan.status());
  if (Status s = CheckTimelinePath(*job); !s.ok()) return Report(s);
  if (Status s = CheckMachine(*job, plan->model, plan->steps); !s.ok()) return Report(s);
  const uint64_t step_count = plan->steps.step_count();
  Result<ChaosPlan> chaos = ChaosPlan{};
  if (!options.supervision.chaos.empty()) {
    const uint32_t server_count = job->strategy == Strategy::kAllreduce ? 0 : job->servers;
    chaos = ParseChaos(options.supervision.chaos,
                       {job->workers, server_count, step_count, FirstStep(folder)});
  }
  if (!chaos.ok()) return Report(chaos.status());
  if (Result<RunFolder> reopened = RunFolder::Reopen(*job); !reopened.ok())
    return Report(reopened.status());
  const int exit_code = RunLocal({.job = *job,
                                  .folder = folder,
                                  .is_resumed = true,
                                  .step_count = step_count,
                                  .chaos = *chaos,
                                  .restarts_max = options.supervision.restarts_max,
                                  .group_restarts = options.supervision.group_restarts,
                                  .is_verbose = options.is_verbose});
  if (exit_code == kExitFenced) return exit_code;
  Result<Summary> summary = folder.ReadSummary();
  if (!summary.ok()) return exit_code == kExitCompleted ? Report(summary.status()) : exit_code;
  PrintSummary(options, *summary, folder);
  return ConcludeTimeline(*job, folder, exit_code);
}

}  // namespace

Subcommand AddResumeCommand(CLI::App& app) {
  auto options = std::make_shared<ResumeOptions>();
  CLI::App& command = *app.add_subcommand(
      "resume",
      "Continues a run whose processes are all gone, from its last snapshot to the same weights,\n"
      "on this machine, with the numbers of processes in its job file or the flags.");
  command.add_option("RUN_DIR", options->run_dir, "the run's folder")->required();
  AddResumeOptions(command, &options->source);
  AddSupervisionOptions(command, &options->supervision);
  command.add_flag("--json", options->is_json, "print the summary to standard output at the end");
  AddVerboseOption(command, &options->is_verbose);
  command.footer(std::string("\nExample:\n"
                             "  pando resume runs/first --workers 1 --servers 1\n\n"
                             "On several machines start the scheduler by hand instead, with "
                             "--resume.\n\n") +
                 kChaosHelp + "\n" + kExitCodesHelp);
  return [options] { return Resume(*options); };
}

}  // namespace pando
