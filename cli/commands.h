// The subcommands of pando, one file each: Add... declares a subcommand's options and returns what
// runs it once they are parsed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/flags.h"
#include "job/job_file.h"
#include "job/run_plan.h"
#include "models/graph.h"
#include "net/zmq/keys.h"
#include "node/service_notice.h"
#include "run/initial_weights.h"
#include "run/run_folder.h"

namespace pando {

// Returns an exit code, or a failure, which main reports.
using Subcommand = std::function<Result<int>()>;

Subcommand AddTrainCommand(CLI::App& app);
// `program`: the words behind "--".
Subcommand AddRunCommand(CLI::App& app, const std::vector<std::string>& program);
Subcommand AddSchedulerCommand(CLI::App& app);
Subcommand AddServerCommand(CLI::App& app);
Subcommand AddWorkerCommand(CLI::App& app);
Subcommand AddNodeCommand(CLI::App& app, const std::vector<std::string>& program);
Subcommand AddResumeCommand(CLI::App& app);
Subcommand AddStatusCommand(CLI::App& app);
Subcommand AddViewCommand(CLI::App& app);
Subcommand AddDrainCommand(CLI::App& app);
Subcommand AddSnapshotCommand(CLI::App& app);
Subcommand AddStopCommand(CLI::App& app);
Subcommand AddExportCommand(CLI::App& app);
Subcommand AddEvaluateCommand(CLI::App& app);
Subcommand AddPredictCommand(CLI::App& app);
Subcommand AddVerifyCommand(CLI::App& app);
Subcommand AddModelsCommand(CLI::App& app);
Subcommand AddModelCommand(CLI::App& app);
Subcommand AddPlanCommand(CLI::App& app);
Subcommand AddKeysCommand(CLI::App& app);
Subcommand AddDataCommand(CLI::App& app);
Subcommand AddDoctorCommand(CLI::App& app);
Subcommand AddBenchCommand(CLI::App& app);
Subcommand AddTimelineCommand(CLI::App& app);
Subcommand AddTopCommand(CLI::App& app);

// ---- options that several subcommands share ----------------------------------------------------

// Where a job comes from: a file, flags, --set.
struct JobSource {
  std::string job_path;  // empty: defaults
  std::vector<JobDraft::Override> overrides;
};
// `source` must outlive the parsing.
void AddJobOptions(CLI::App& command, JobSource* source);

// The length of a run.
bool IsLengthKey(const JobKey& key);
// Only the keys that a resumed run may change: processes, devices, the data's folder, its length.
void AddResumeOptions(CLI::App& command, JobSource* source);

// Only the keys that a program does not declare (P43): processes, snapshots, the run folder.
void AddProgramOptions(CLI::App& command, JobSource* source);

// Only the keys that say what a model and its data are.
void AddModelOptions(CLI::App& command, JobSource* source);

// Only the keys that a model's size and a step's memory depend on, and --set.
void AddCostOptions(CLI::App& command, JobSource* source);

// Reads the job, chooses the data if no key does, and fills in name and folder. Notices go to
// standard error.
Result<Job> ResolveJob(const JobSource& source);
// The weights that a run starts from, where its job names a file; fills in their hash. Says which
// of them are drawn from the seed.
Result<std::optional<InitialWeights>> FindInitialWeights(const OpenedJob& opened, Job* job);

// Which model a command is about, and for what samples and classes: of the commands that show or
// judge models without training them.
struct ModelChoice {
  std::string name;          // of the zoo, or a network's file
  std::string input;         // "224x224x3"; empty: what the model was made for
  uint32_t class_count = 0;  // 0: also
  JobSource source;          // keys that a model's size depends on
};
// --input and --classes.  `choice` must outlive the parsing.
void AddModelShapeOptions(CLI::App& command, ModelChoice* choice);
// The job that trains it, its network's file read. `where`: the flag or argument that names it.
Result<Job> MakeJob(const ModelChoice& choice, const std::string& where);
Result<Graph> BuildGraph(const ModelChoice& choice, const Job& job);
// "224x224x3": height, width, channels. The error names `where` it stands.
Result<SampleShape> ParseShape(const std::string& where, const std::string& text);

void AddVerboseOption(CLI::App& command, bool* is_verbose);
inline constexpr const char* kPreloadHelp =
    "fork the workers from one process that has run PROGRAM up to the run: a killed one is back at "
    "once";
// Of a job whose model is a program's.
void AddPreloadOption(CLI::App& command, JobSource* source);
void AddJoinOption(CLI::App& command, std::string* endpoint);

// The run that a command is for: its folder, or where its scheduler listens.
struct RunAddress {
  std::string run_dir;
  std::string join;
  std::string keys;  // the folder of --keys
};
void AddRunAddress(CLI::App& command, RunAddress* address);
// How a command makes its run folder: --force, --shared-run-dir.
struct FolderChoice {
  bool is_forced = false;
  bool is_shared = false;
  Result<RunFolder> Create(const Job& job) const;
};
void AddFolderOptions(CLI::App& command, FolderChoice* choice);
// --keys.
void AddKeysOption(CLI::App& command, std::string* folder);
// Of a run that makes keys for itself.
void AddOwnKeysOption(CLI::App& command, std::string* folder);
// The keys of --keys, of the run's folder, or of PANDO_KEYS; `purpose`: the secret that is needed.
// No keys where there are none.
Result<Keys> FindRunKeys(const RunAddress& run, KeyRole purpose);
// The scheduler's endpoint; an error that says what to give where the address has none or two.
Result<std::string> FindEndpoint(const RunAddress& address);
// `what`: "its lanes listen".
void AddBindOptions(CLI::App& command, const std::string& what, std::string* bind, bool* insecure);
void AddStartTimeoutOption(CLI::App& command, uint32_t* start_timeout_ms);
void AddMaxRestartsOption(CLI::App& command, uint32_t* restarts_max);
void AddMovedDataOption(CLI::App& command, std::string* data_path);

// "tcp://HOST:PORT" or "ipc://PATH".
Status CheckEndpoint(const std::string& flag, const std::string& endpoint);
// And only on loopback, unless `is_insecure` or there are keys.
Status CheckBind(const std::string& endpoint, bool is_insecure, const Keys& keys);
// The address on which servers listen that join there; empty: chosen by ServerArgs::bind's rule.
Status CheckServing(const std::string& join, const std::string& bind, bool is_insecure,
                    const Keys& keys);

// The service manager that started this process, from its variables, which it removes: they are not
// for children.
ServiceManager TakeServiceManager();

// The last words of a run.
void PrintSummary(const Summary& summary, const RunFolder& folder);

// What `pando train`, `run` and `resume` end with: the summary, as JSON too where `is_json`, and
// the trace. Returns the exit code.
Result<int> ConcludeRun(const Job& job, const RunFolder& folder, bool is_json, int exit_code);

// One line on standard error; returns the exit code of the status.
int Report(const Status& status);

// Before the run: whether a trace can be written where its job wants one.
Status CheckTimelinePath(const Job& job);
// The trace of a run that has ended, where its job wants one. Returns the run's exit code, or why
// there is no trace of a run that ended well.
int ConcludeTimeline(const Job& job, const RunFolder& folder, int exit_code);

}  // namespace pando
