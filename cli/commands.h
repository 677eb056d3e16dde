// The subcommands of pando, one file each. Each Add... function declares a subcommand's options and
// returns the function that runs it once they are parsed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/flag.h"
#include "job/job_draft.h"
#include "job/run_plan.h"
#include "models/graph.h"
#include "net/zmq/keys.h"
#include "node/service_notice.h"
#include "run/initial_weights.h"
#include "run/run_folder.h"

namespace pando {

struct LocalRunArgs;

// Returns an exit code, or a failure, which main reports.
using Subcommand = std::function<Result<int>()>;

Subcommand AddTrainCommand(CLI::App& app);
// `program` has the words after "--".
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

// The sources of a job: a file, and flags and --set, which override its keys.
struct JobSource {
  std::string job_path;  // empty: defaults
  std::vector<JobDraft::Override> overrides;
};
// Adds the job file and flags for all keys. `source` must outlive the parsing.
void AddJobOptions(CLI::App& command, JobSource* source);

// Returns whether the key sets the length of a run.
bool IsLengthKey(const JobKey& key);
// Adds the keys that a resumed run may change: processes, devices, the data's folder, its length.
void AddResumeOptions(CLI::App& command, JobSource* source);

// Adds the keys that a program does not declare (P43): processes, snapshots, the run folder.
void AddProgramOptions(CLI::App& command, JobSource* source);

// Adds the keys that describe a model and its data.
void AddModelOptions(CLI::App& command, JobSource* source);

// Adds --set, and the keys on which a model's size and a step's memory depend.
void AddCostOptions(CLI::App& command, JobSource* source);

// Reads the job, chooses the data if no key does, and fills in name and folder. Notices go to
// standard error.
Result<Job> ResolveJob(const JobSource& source);
// Refuses overrides of keys that a program declares, because its values would silently win.
Status RefuseProgramKeys(const JobSource& source, const std::function<bool(const JobKey&)>& is_its);
// Reads the weights from which a run starts, if its job names a file, and fills in their hash.
// Names the weights that are drawn from the seed.
Result<std::optional<InitialWeights>> FindInitialWeights(const OpenedJob& opened, Job* job);

// The model that a command is about, with its samples and classes. It is for commands that show or
// judge models without training them.
struct ModelChoice {
  std::string name;          // a model of the zoo, or a network file's path
  std::string input;         // "224x224x3"; empty: the shape for which the model was made
  uint32_t class_count = 0;  // 0: the count for which the model was made
  JobSource source;          // keys on which a model's size depends
};
// Adds --input and --classes. `choice` must outlive the parsing.
void AddModelShapeOptions(CLI::App& command, ModelChoice* choice);
// Makes the job that trains the model. `where` is the flag or argument that names the model.
Result<Job> MakeJob(const ModelChoice& choice, const std::string& where);
Result<Graph> BuildGraph(const ModelChoice& choice, const Job& job);
// Parses "224x224x3": height, width, channels. An error names the text's place, `where`.
Result<SampleShape> ParseShape(const std::string& where, const std::string& text);

void AddVerboseOption(CLI::App& command, bool* is_verbose);
inline constexpr const char* kPreloadHelp =
    "fork the workers from one process that has run PROGRAM up to the run: a killed one is back at "
    "once";
// Adds --preload, for a job whose model comes from a program.
void AddPreloadOption(CLI::App& command, JobSource* source);
void AddJoinOption(CLI::App& command, std::string* endpoint);

// The run that a command is about: its folder, or the endpoint of its scheduler.
struct RunAddress {
  std::string run_dir;
  std::string join;
  std::string keys;  // the folder of --keys
};
void AddRunAddress(CLI::App& command, RunAddress* address);
// The flags that say how a command creates its run folder: --force, --shared-run-dir.
struct FolderChoice {
  bool is_forced = false;
  bool is_shared = false;
  Result<RunFolder> Create(const Job& job) const;
};
void AddFolderOptions(CLI::App& command, FolderChoice* choice);
// Adds --keys.
void AddKeysOption(CLI::App& command, std::string* folder);
// Adds --keys to a command whose run otherwise makes its own keys.
void AddOwnKeysOption(CLI::App& command, std::string* folder);
// Returns the keys in the folder of --keys, in the run's folder, or in that of PANDO_KEYS.
// `purpose` is the secret that is needed. Returns no keys if there are none.
Result<Keys> FindRunKeys(const RunAddress& run, KeyRole purpose);
// Returns the scheduler's endpoint. If the address has none or two, the error says what to give.
Result<std::string> FindEndpoint(const RunAddress& address);
// Adds --bind and --insecure. `what` is for example "its lanes listen".
void AddBindOptions(CLI::App& command, const std::string& what, std::string* bind, bool* insecure);
void AddStartTimeoutOption(CLI::App& command, uint32_t* start_timeout_ms);
void AddMaxRestartsOption(CLI::App& command, uint32_t* restarts_max);
void AddMovedDataOption(CLI::App& command, std::string* data_path);

// Accepts "tcp://HOST:PORT" or "ipc://PATH".
Status CheckEndpoint(const std::string& flag, const std::string& endpoint);
// The same for a list with commas between the endpoints (SplitEndpoints).
Status CheckEndpoints(const std::string& flag, const std::string& endpoints);
// Does the same for --bind; accepts only loopback, unless `is_insecure` is set or there are keys.
Status CheckBind(const std::string& endpoint, bool is_insecure, const Keys& keys);
// Checks where servers that join there listen. If `bind` is empty, ServerArgs::bind's rule applies.
Status CheckServing(const std::string& join, const std::string& bind, bool is_insecure,
                    const Keys& keys);

// Reads which service manager started this process from its variables, and removes them, because
// they are not for children.
ServiceManager TakeServiceManager();

// Prints the last lines of a run.
void PrintSummary(const Summary& summary, const RunFolder& folder);

// Ends `pando train`, `run` and `resume`: prints the summary, also as JSON if `is_json`, and makes
// the trace. Returns the exit code.
Result<int> ConcludeRun(const Job& job, const RunFolder& folder, bool is_json, int exit_code);

// How `pando run` and `pando resume` run a program, beside the run's arguments.
struct ProgramRun {
  FolderChoice folder;
  bool is_json = false;
  std::string http;  // --http
};
// Runs a program to its end, in `folder` and in a new run for each further join of its script.
Result<int> RunToEnd(LocalRunArgs run, RunFolder folder, const ProgramRun& how);

// Prints one line on standard error; returns the exit code of the status.
int Report(const Status& status);

// Checks before the run that a trace can be written, if its job wants one.
Status CheckTimelinePath(const Job& job);
// Makes the trace of a run that has ended, if its job wants one. Returns the run's exit code, or
// the trace's failure if the run ended well.
int ConcludeTimeline(const Job& job, const RunFolder& folder, int exit_code);

}  // namespace pando
