// The subcommands of pando, one file each: Add... declares a subcommand's options and returns what
// runs it once they are parsed.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "job/job_file.h"
#include "node/supervisor.h"
#include "run/run_folder.h"

namespace pando {

// Returns an exit code.
using Subcommand = std::function<int()>;

Subcommand AddTrainCommand(CLI::App& app);
Subcommand AddSchedulerCommand(CLI::App& app);
Subcommand AddServerCommand(CLI::App& app);
Subcommand AddWorkerCommand(CLI::App& app);
Subcommand AddNodeCommand(CLI::App& app);
Subcommand AddResumeCommand(CLI::App& app);
Subcommand AddStatusCommand(CLI::App& app);
Subcommand AddDrainCommand(CLI::App& app);
Subcommand AddSnapshotCommand(CLI::App& app);
Subcommand AddStopCommand(CLI::App& app);
Subcommand AddExportCommand(CLI::App& app);
Subcommand AddEvaluateCommand(CLI::App& app);
Subcommand AddVerifyCommand(CLI::App& app);
Subcommand AddModelsCommand(CLI::App& app);
Subcommand AddModelCommand(CLI::App& app);
Subcommand AddPlanCommand(CLI::App& app);
Subcommand AddDataCommand(CLI::App& app);
Subcommand AddDoctorCommand(CLI::App& app);
Subcommand AddBenchCommand(CLI::App& app);
Subcommand AddTimelineCommand(CLI::App& app);

// ---- options that several subcommands share ----------------------------------------------------

// Where a job comes from: a file, flags, --set.
struct JobSource {
  std::string job_path;  // empty: defaults
  std::vector<JobDraft::Override> overrides;
};
// `source` must outlive the parsing.
void AddJobOptions(CLI::App& command, JobSource* source);

// Only the keys that a resumed run may change: processes, devices and the data's folder.
void AddResumeOptions(CLI::App& command, JobSource* source);

// Only the keys that say what a model and its data are.
void AddModelOptions(CLI::App& command, JobSource* source);

// Only the keys that a model's size and a step's memory depend on, and --set.
void AddCostOptions(CLI::App& command, JobSource* source);

// Reads the job, chooses the data if no key does, and fills in name and folder. Notices go to
// standard error.
Result<Job> ResolveJob(const JobSource& source);
void PrintWarnings(const JobDraft& draft);  // prints its warnings to standard error

void AddVerboseOption(CLI::App& command, bool* is_verbose);
void AddJoinOption(CLI::App& command, std::string* endpoint);
void AddStartTimeoutOption(CLI::App& command, uint32_t* start_timeout_ms);

// "tcp://HOST:PORT" or "ipc://PATH".
Status CheckEndpoint(const std::string& flag, const std::string& endpoint);
// And only on loopback, unless `is_insecure`.
Status CheckBind(const std::string& endpoint, bool is_insecure);

// Faults to inject, and restarts of processes that die.
struct SupervisionOptions {
  std::string chaos;
  uint32_t restarts_max = kRestartsMaxDefault;
  uint32_t group_restarts = 0;
};
void AddSupervisionOptions(CLI::App& command, SupervisionOptions* options);
Status CheckSupervision(const SupervisionOptions& options, const Job& job);
void AddMaxRestartsOption(CLI::App& command, uint32_t* restarts_max);

// The last words of a run, on standard error.
void PrintOutcome(const Summary& summary, const RunFolder& folder);

// One line on standard error; returns the exit code of the status.
int Report(const Status& status);

// Before the run: whether a trace can be written where its job wants one.
Status CheckTimelinePath(const Job& job);
// The trace of a run that has ended, where its job wants one. Returns the run's exit code, or why
// there is no trace of a run that ended well.
int ConcludeTimeline(const Job& job, const RunFolder& folder, int exit_code);

}  // namespace pando
