// The subcommands that start a run's processes by hand, show them, or send them requests:
// scheduler, server, worker, node, status, drain, snapshot, stop.
#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "cli/bind_choice.h"
#include "cli/commands.h"
#include "cli/program_choice.h"
#include "cli/standby/etcd_options.h"
#include "cli/status_table.h"
#include "common/clock.h"
#include "common/endpoint.h"
#include "common/exit_codes.h"
#include "common/output.h"
#include "common/system.h"
#include "job/device_choice.h"
#include "job/job_file.h"
#include "net/address.h"
#include "net/scheduler_client.h"
#include "net/transport.h"
#include "node/log.h"
#include "node/processes.h"
#include "plan/external_model.h"
#include "run/run_folder.h"
#include "run/run_lock.h"

namespace pando {
namespace {

constexpr const char* kSchedulerBind = "tcp://127.0.0.1:7070";

struct SchedulerOptions {
  JobSource source;
  SchedulerArgs args{.bind = kSchedulerBind};
  std::string interface;
  std::string keys_folder;
  std::string prepared_run_dir;  // a folder that `pando train` made
  FolderChoice folder;
  EtcdChoice etcd;
  bool is_verbose = false;
};

// Takes the initial weights' hash from the run's folder, which keeps them; the file may be gone.
void TakeInitHash(Job* job) {
  if (job->init.empty()) return;
  const Result<Job> begun = ReadJobFile(RunFolder::Open(job->run_dir).JobPath());
  if (begun.ok() && begun->init == job->init) job->init_hash = begun->init_hash;
}

// Takes the declaration of a program from the run's folder, for a restarted scheduler. A job file
// that only says how the program is run belongs to that run too.
void TakeDeclaration(Job* job) {
  if (!IsExternal(*job) || IsDeclared(*job)) return;
  Result<Job> begun = ReadJobFile(RunFolder::Open(job->run_dir).JobPath());
  if (!begun.ok() || !IsExternal(*begun) || !IsDeclared(*begun)) return;
  for (const JobKey& key : JobKeys()) {
    const bool is_of_processes = key.name.starts_with("run.") ||
                                 key.name.starts_with("snapshot.") ||
                                 key.name.starts_with("verify.");
    if (is_of_processes) key.set(*begun, key.get(*job));
  }
  *job = *std::move(begun);
}

// Returns whether the key is in a section that a program declares whole. Of other sections a job
// names some keys, as model.name.
bool IsOfTraining(const JobKey& key) {
  return key.name.starts_with("train.") || key.name.starts_with("optimizer.") ||
         key.name.starts_with("schedule.");
}

// A run keeps its cut, also where the job file has another number of servers now. Allreduce has
// only one cut, and the run folder refuses it if the run began with another.
void TakeServersMax(Job* job) {
  if (job->servers_max != 0 || job->strategy == Strategy::kAllreduce) return;
  const Result<Job> begun = ReadJobFile(RunFolder::Open(job->run_dir).JobPath());
  if (begun.ok()) job->servers_max = begun->servers_max;
}

Result<RunFolder> MakeNewFolder(const FolderChoice& choice, Job* job) {
  if (job->init.empty()) return choice.Create(*job);
  PANDO_ASSIGN_OR_RETURN(OpenedJob opened, MakeRunPlan(*job));
  PANDO_ASSIGN_OR_RETURN(std::optional<InitialWeights> initial, FindInitialWeights(opened, job));
  PANDO_ASSIGN_OR_RETURN(RunFolder folder, choice.Create(*job));
  PANDO_RETURN_IF_ERROR(KeepInitialWeights(*initial, folder, opened.plan));
  return folder;
}

// Makes or opens the run folder. A scheduler that a user restarts continues its run.
Result<RunFolder> MakeFolder(const SchedulerOptions& options, SchedulerArgs args, Job* job) {
  if (!options.prepared_run_dir.empty()) return RunFolder::Open(options.prepared_run_dir);
  Job begun = *job;
  TakeDeclaration(&begun);
  TakeInitHash(&begun);
  TakeServersMax(&begun);
  const bool is_unfinished = RunFolder::HoldsUnfinished(begun);
  if (is_unfinished && (options.args.is_resumed || !options.folder.is_forced)) {
    *job = begun;
    if (!args.etcd) PANDO_RETURN_IF_ERROR(CheckJournalIsHere(job->run_dir));
    if (args.etcd && !HasSeat(job->run_dir)) {
      return InvalidArgument(
          fmt::format("the journal of the run in {} is in the folder and not in etcd: leave out "
                      "--etcd, or begin another run in a new folder",
                      job->run_dir));
    }
    if (options.args.is_resumed) {
      args.run_dir = job->run_dir;
      PANDO_RETURN_IF_ERROR(CheckNoMemberAnswers(args));
      return RunFolder::Reopen(*job);
    }
    Say("pando: continuing the run in {} with the servers and workers that are left; if none "
        "is, start the scheduler with --resume\n",
        job->run_dir);
    return RunFolder::Open(job->run_dir);
  }
  if (!options.args.is_resumed) return MakeNewFolder(options.folder, job);
  return NotFound(fmt::format(
      "{} holds no unfinished run of this job; give the job file of a run folder", job->run_dir));
}

// Checks that the scheduler can listen, before a folder is created or emptied. A scheduler that
// continues a run waits for its port instead (BindPatiently).
Status CheckCanListen(const std::string& bind) {
  ZmqContext context;
  Transport transport(context, {kSchedulerNode, NewIncarnation(), 0}, {.insecure = true});
  const Result<std::string> bound = transport.Bind(bind);
  return bound.ok() ? Status() : BadBind(bound.status());
}

// Checks that other schedulers and all nodes reach this one, under the endpoint that it is given.
Status CheckMeetingPoint(const std::string& bind) {
  if (const Result<Endpoint> parsed = ParsePeerEndpoint(bind); parsed.ok()) {
    if (parsed->kind == Endpoint::Kind::kTcp) return Status();
  }
  return InvalidArgument(
      fmt::format("with --etcd the other schedulers and all nodes dial this one: give --bind "
                  "tcp://ADDRESS:PORT with an address of this machine and a port, not {}",
                  bind));
}

// A standby has no job file: the run's comes from the leader.
Result<int> StandByFor(const SchedulerOptions& options, SchedulerArgs args) {
  std::string run_dir;
  for (const auto& given : options.source.overrides) {
    if (given.key != "run.dir")
      return InvalidArgument("a standby takes its job from the leader: leave out " + given.where);
    run_dir = given.text;
  }
  if (!options.source.job_path.empty())
    return InvalidArgument("a standby takes its job from the leader: leave out the job file");
  if (run_dir.empty()) return InvalidArgument("--standby needs --run-dir, an empty folder");
  args.run_dir = run_dir;
  PANDO_ASSIGN_OR_RETURN(args.etcd, ReadEtcdChoice(options.etcd, run_dir));
  PANDO_RETURN_IF_ERROR(CheckMeetingPoint(args.bind));
  if (!HasJournal(run_dir)) PANDO_RETURN_IF_ERROR(CheckCanListen(args.bind));
  std::error_code error;
  std::filesystem::create_directories(run_dir, error);
  SetUpLog({.process = "scheduler", .is_verbose = options.is_verbose});
  args.is_standby = true;
  return RunScheduler(args);
}

Result<int> Schedule(const SchedulerOptions& options) {
  SchedulerArgs args = options.args;
  args.manager = TakeServiceManager();
  args.is_verbose = options.is_verbose;
  PANDO_ASSIGN_OR_RETURN(args.bind, ChooseBind(args.bind, options.interface, kSchedulerBind));
  if (const std::string folder = KeysFolder(options.keys_folder); !folder.empty()) {
    PANDO_ASSIGN_OR_RETURN(args.keys, ReadSchedulerKeys(folder));
  }
  PANDO_RETURN_IF_ERROR(CheckBind(args.bind, args.insecure, args.keys));
  if (options.etcd.is_standby) return StandByFor(options, args);
  PANDO_ASSIGN_OR_RETURN(Job job, ResolveJob(options.source));
  PANDO_ASSIGN_OR_RETURN(args.etcd, ReadEtcdChoice(options.etcd, job.run_dir));
  if (args.etcd) PANDO_RETURN_IF_ERROR(CheckMeetingPoint(args.bind));
  // A leader that was lost, and whose folder its successor fills, has no job in it for a while.
  const RunFolder kept = RunFolder::Open(job.run_dir);
  std::error_code ignored;
  if (args.etcd && HasSeat(job.run_dir) && !std::filesystem::exists(kept.JobPath(), ignored) &&
      !options.folder.is_forced) {
    args.run_dir = job.run_dir;
    args.is_standby = true;
    return RunScheduler(args);
  }
  if (IsExternal(job) && !IsDeclared(job))
    PANDO_RETURN_IF_ERROR(RefuseProgramKeys(options.source, IsOfTraining));
  if (!args.keys.are_none()) PANDO_RETURN_IF_ERROR(CheckKeysFit(job));
  if (options.prepared_run_dir.empty()) PANDO_RETURN_IF_ERROR(CheckTimelinePath(job));
  const bool continues = HasJournal(job.run_dir) && !options.folder.is_forced;
  if (options.prepared_run_dir.empty() && !continues)
    PANDO_RETURN_IF_ERROR(CheckCanListen(args.bind));
  PANDO_ASSIGN_OR_RETURN(RunFolder folder, MakeFolder(options, args, &job));
  SetUpLog({.process = "scheduler",
            .is_verbose = options.is_verbose,
            .file = folder.LogPath("scheduler")});
  args.job = job;
  args.run_dir = folder.path();
  args.is_forced = options.folder.is_forced && !options.args.is_resumed;
  const int exit_code = RunScheduler(args);
  const bool is_ours = options.prepared_run_dir.empty() && exit_code != kExitFenced;
  if (const Result<Summary> summary = folder.ReadSummary(); is_ours && summary.ok())
    PrintSummary(*summary, folder);
  return is_ours ? ConcludeTimeline(job, folder, exit_code) : exit_code;
}

Result<int> Serve(ServerArgs args, const std::string& keys_folder) {
  PANDO_RETURN_IF_ERROR(CheckEndpoints("--join", args.join));
  PANDO_ASSIGN_OR_RETURN(args.keys, FindKeys(keys_folder, KeyRole::kMember));
  PANDO_RETURN_IF_ERROR(CheckServing(args.join, args.bind, args.insecure, args.keys));
  SetUpLog({.process = "server", .is_verbose = args.is_verbose});
  return RunServer(args);
}

Result<int> Work(WorkerArgs args, const std::string& keys_folder) {
  PANDO_RETURN_IF_ERROR(CheckEndpoints("--join", args.join));
  PANDO_ASSIGN_OR_RETURN(args.keys, FindKeys(keys_folder, KeyRole::kMember));
  PANDO_RETURN_IF_ERROR(ParseDevice("--device", args.device).status());
  SetUpLog({.process = "worker", .is_verbose = args.is_verbose});
  return RunWorker(args);
}

Result<int> KeepNode(NodeArgs args, const std::string& keys_folder, const std::string& workers) {
  PANDO_RETURN_IF_ERROR(CheckEndpoints("--join", args.join));
  PANDO_ASSIGN_OR_RETURN(args.keys, FindKeys(keys_folder, KeyRole::kMember));
  if (args.server_count > 0)
    PANDO_RETURN_IF_ERROR(CheckServing(args.join, args.bind, args.insecure, args.keys));
  SetUpLog({.process = "node", .is_verbose = args.is_verbose});
  PANDO_RETURN_IF_ERROR(ParseDevice("--device", args.device).status());
  NodeArgs counted = args;
  counted.manager = TakeServiceManager();
  if (workers != "auto") counted.worker_count = static_cast<uint32_t>(std::stoul(workers));
  if (!args.worker.command.empty() && counted.worker_count == 0u)
    return InvalidArgument("--workers 0 starts no program; leave '" + args.worker.command[0] +
                           "' out");
  if (counted.server_count == 0 && counted.worker_count == 0u)
    return InvalidArgument("--servers 0 --workers 0 starts no process; give at least one");
  return RunNode(counted);
}

struct StatusOptions {
  RunAddress run;
  bool is_json = false;  // prints the scheduler's JSON instead of a table
  uint32_t timeout_ms = 5000;
};

// Returns what to try if no scheduler answers.
std::string NextAfterSilence(const RunAddress& run) {
  if (run.run_dir.empty()) return "check the address, and that the run has not ended";
  return fmt::format("if all its processes are gone, pando resume {} continues the run",
                     run.run_dir);
}

Result<int> ShowStatus(const StatusOptions& options) {
  PANDO_ASSIGN_OR_RETURN(const std::string endpoint, FindEndpoint(options.run));
  SetUpLog({.process = "status"});
  PANDO_ASSIGN_OR_RETURN(Keys keys, FindRunKeys(options.run, KeyRole::kReader));
  ZmqContext context(std::move(keys));
  const Micros deadline = SteadyNow() + std::chrono::milliseconds(options.timeout_ms);
  const Result<std::string> answer =
      RequestStatus(context, endpoint, deadline, NextAfterSilence(options.run));
  if (!answer.ok()) return ExitWith(answer.status());
  const Result<RunStatus> status = ParseStatus(*answer);
  if (!status.ok()) {
    spdlog::error("the answer from {} is not a status; is it another version of pando? {}",
                  endpoint, status.status().message());
    return kExitFailed;
  }
  Print("{}", options.is_json ? *answer + "\n" : StatusTable(*status));
  return kExitCompleted;
}

void AddDataOptions(CLI::App& command, std::string* data_path, std::string* data_cache) {
  AddOption(command, "--data PATH", data_path,
            "folder of the data set on this machine, if it is not the job's");
  AddOption(command, "--data-cache FOLDER", data_cache,
            "folder of decoded photographs on this machine, if it is not the job's");
}

// ---- drain, snapshot, stop: requests to a running scheduler -------------------------------------

constexpr double kTimeoutDefaultSeconds = 60;
constexpr std::chrono::seconds kSilenceMax{10};  // unless --timeout is given

struct ClientOptions {
  RunAddress run;
  std::string target;  // for drain; with a folder, the word after it
  double timeout_seconds = kTimeoutDefaultSeconds;
};

// Waits until no scheduler leads the run in the folder any more, so that it can be resumed.
Result<int> AwaitEnd(const std::string& run_dir, Micros deadline) {
  constexpr auto kLookInterval = std::chrono::milliseconds(50);
  if (run_dir.empty()) return kExitCompleted;  // --join: the folder may be on another machine
  while (SteadyNow() < deadline) {
    const Result<RunLock> lock = RunLock::Acquire(run_dir);
    if (lock.ok() || lock.status().code() != StatusCode::kAlreadyExists) return kExitCompleted;
    std::this_thread::sleep_for(kLookInterval);
  }
  return Unavailable(
      fmt::format("the run in {} has not ended yet; raise --timeout to wait longer", run_dir));
}

// Returns whether the run in the folder is completed and only scripts continue after their loop.
// Asks the process that waits for these scripts to end them.
bool StopScripts(const std::string& run_dir) {
  if (run_dir.empty()) return false;  // --join
  const Result<Summary> summary = RunFolder::Open(run_dir).ReadSummary();
  if (!summary.ok() || summary->status != kStatusCompleted) return false;
  const std::optional<pid_t> holder = RunLock::FindHolder(run_dir);
  if (!holder || kill(*holder, SIGINT) != 0) return false;
  Say("the run is completed; ending the scripts that go on after their loop\n");
  return true;
}

// Sends a command to the scheduler, and shows each reply until the command is carried out.
Result<int> Order(const ClientOptions& options, CommandKind kind) {
  const Micros timeout(static_cast<int64_t>(options.timeout_seconds * 1e6));
  const Micros deadline = SteadyNow() + timeout;
  if (kind == CommandKind::kStop && StopScripts(options.run.run_dir))
    return AwaitEnd(options.run.run_dir, deadline);
  PANDO_ASSIGN_OR_RETURN(const std::string endpoint, FindEndpoint(options.run));
  PANDO_ASSIGN_OR_RETURN(Keys keys, FindRunKeys(options.run, KeyRole::kAdmin));
  ZmqContext context(std::move(keys));
  const bool is_given = options.timeout_seconds != kTimeoutDefaultSeconds;
  PANDO_ASSIGN_OR_RETURN(const std::string done,
                         RequestCommand(context, endpoint, {.kind = kind, .target = options.target},
                                        {.answer_max = is_given ? timeout : kSilenceMax,
                                         .done_max = timeout,
                                         .after_silence = NextAfterSilence(options.run),
                                         .after_slowness = "raise --timeout to wait longer"},
                                        [](const std::string& said) { Say("{}\n", said); }));
  Print("{}\n", done);
  if (kind == CommandKind::kStop) return AwaitEnd(options.run.run_dir, deadline);
  return kExitCompleted;
}

// `example` has the words after "pando".
Subcommand AddOrderCommand(CLI::App& app, CommandKind kind, const char* name,
                           const char* description, const char* example) {
  auto options = std::make_shared<ClientOptions>();
  CLI::App& command =
      DeclareCommand(app, name, description, fmt::format("Example:\n  pando {}\n", example));
  AddOption(command, "--timeout SECONDS", &options->timeout_seconds,
            fmt::format("seconds to wait until it is done [{:g}]", kTimeoutDefaultSeconds),
            InRange(0.001, 86400.0));
  AddRunAddress(command, &options->run);
  if (kind != CommandKind::kDrain) return [options, kind] { return Order(*options, kind); };
  AddOption(command, "NODE", &options->target, "as pando status names it: worker-1, server-0");
  return [options, kind]() -> Result<int> {
    // With --join the only word is the process.
    if (!options->run.join.empty() && options->target.empty())
      options->target.swap(options->run.run_dir);
    if (options->target.empty())
      return InvalidArgument("give the process to drain: pando drain RUN_DIR worker-1");
    return Order(*options, kind);
  };
}

void AddLabelOption(CLI::App& command, std::vector<std::string>* labels) {
  AddOption(
      command, "--label KEY=NAME", labels,
      "what fails together, so that a shard's replicas are apart: rack=NAME, host=NAME; may be "
      "repeated [no rack; hosts by their kernel's boot id]. Workers of one rack may sum their "
      "gradients (run.rack_sum)")
      .TakesOneEach()
      .Check(Flag::Rule([](const std::string& label) {
        const Result<Labels> parsed = ParseLabels({label});
        return parsed.ok() ? std::string() : parsed.status().message();
      }));
}

}  // namespace

Subcommand AddSchedulerCommand(CLI::App& app) {
  auto options = std::make_shared<SchedulerOptions>();
  CLI::App& command = DeclareCommand(
      app, "scheduler",
      "Starts a run and leads it: waits for run.servers servers and run.workers workers to join,\n"
      "assigns the work, shows the progress, writes the run folder.",
      "Example, one line per terminal:\n"
      "  pando scheduler job.toml --bind tcp://127.0.0.1:7070\n"
      "  pando server --join tcp://127.0.0.1:7070\n"
      "  pando worker --join tcp://127.0.0.1:7070\n\n"
      "After a power cut, for servers and workers of several machines:\n"
      "  pando scheduler runs/first/job.toml --resume --bind tcp://10.0.0.1:7070 --keys KEYS\n\n"
      "A scheduler that died alone is restarted without --resume: training has continued.\n\n"
      "Two schedulers, so that the loss of one machine ends nothing (docs/clusters.md):\n"
      "  pando scheduler job.toml --run-dir run --bind tcp://10.0.0.1:7070 --keys KEYS --etcd "
      "http://10.0.0.1:2379\n"
      "  pando scheduler --standby --run-dir run --bind tcp://10.0.0.2:7070 --keys KEYS --etcd "
      "http://10.0.0.1:2379\n"
      "  pando node --join tcp://10.0.0.1:7070,tcp://10.0.0.2:7070 --keys KEYS\n");
  AddJobOptions(command, &options->source);
  AddBindOptions(command, "to listen", &options->args.bind, &options->args.insecure);
  AddInterfaceOption(command, &options->interface);
  AddKeysOption(command, &options->keys_folder);
  AddFolderOptions(command, &options->folder);
  AddOption(command, "--endpoint-file PATH", &options->args.endpoint_file,
            "write the endpoint to this file once it listens (for port 0)");
  AddOption(command, "--prepared-run-dir", &options->prepared_run_dir, "").Group("");
  AddEtcdOptions(command, &options->etcd);
  AddFlag(command, "--resume", &options->args.is_resumed,
          "continue a run whose processes are all gone, from its last snapshot");
  AddVerboseOption(command, &options->is_verbose);
  return [options] { return Schedule(*options); };
}

Subcommand AddServerCommand(CLI::App& app) {
  auto args = std::make_shared<ServerArgs>();
  auto keys_folder = std::make_shared<std::string>();
  auto interface = std::make_shared<std::string>();
  CLI::App& command = DeclareCommand(
      app, "server",
      "Joins a run as a parameter server: sums gradients, runs the optimizer, sends parameters.",
      "Example:\n"
      "  pando server --join tcp://10.0.0.1:7070 --keys KEYS\n");
  AddJoinOption(command, &args->join);
  AddKeysOption(command, keys_folder.get());
  AddBindOptions(command, "its lanes listen; port 0: any free one each", &args->bind,
                 &args->insecure);
  AddInterfaceOption(command, interface.get());
  AddOption(command, "--lanes N", &args->lanes, "serving threads; 0: by cores [0]",
            InRange(0, 256));
  AddLabelOption(command, &args->labels);
  AddStartTimeoutOption(command, &args->start_timeout_ms);
  AddOption(command, "--rank", &args->wanted_rank, "").Group("");
  AddVerboseOption(command, &args->is_verbose);
  return [args, keys_folder, interface]() -> Result<int> {
    PANDO_ASSIGN_OR_RETURN(args->bind, ChooseBind(args->bind, *interface));
    return Serve(*args, *keys_folder);
  };
}

Subcommand AddWorkerCommand(CLI::App& app) {
  auto args = std::make_shared<WorkerArgs>();
  auto keys_folder = std::make_shared<std::string>();
  CLI::App& command = DeclareCommand(
      app, "worker",
      "Joins a run as a worker: computes gradients of micro-batches. The job comes from the "
      "scheduler.",
      "Example:\n"
      "  pando worker --join tcp://10.0.0.1:7070 --keys KEYS --threads 8 --data /data/mnist\n");
  AddJoinOption(command, &args->join);
  AddKeysOption(command, keys_folder.get());
  AddOption(command, "--threads N", &args->threads, "computing threads; 0: as the job says [0]",
            InRange(0, 1024));
  AddOption(command, "--device NAME", &args->device,
            "where it computes: cpu, cuda (the first GPU), cuda:N; auto: a GPU if there is one "
            "[auto]");
  AddDataOptions(command, &args->data_path, &args->data_cache);
  AddLabelOption(command, &args->labels);
  AddBindOptions(command, "it listens if it has a rack", &args->bind, &args->insecure);
  AddStartTimeoutOption(command, &args->start_timeout_ms);
  AddOption(command, "--rank", &args->wanted_rank, "").Group("");
  AddVerboseOption(command, &args->is_verbose);
  return [args, keys_folder] { return Work(*args, *keys_folder); };
}

Subcommand AddNodeCommand(CLI::App& app, const std::vector<std::string>& program) {
  auto args = std::make_shared<NodeArgs>();
  auto workers = std::make_shared<std::string>("auto");
  auto keys_folder = std::make_shared<std::string>();
  auto interface = std::make_shared<std::string>();
  auto is_preloaded = std::make_shared<bool>(false);
  CLI::App& command =
      DeclareCommand(app, "node",
                     "Runs the processes of one machine of a cluster: starts servers and "
                     "workers that join a run,\n"
                     "restarts those that die, and drains them on SIGTERM or Ctrl-C.",
                     "Examples:\n"
                     "  pando node --join tcp://10.0.0.1:7070 --keys KEYS\n"
                     "  pando node --join tcp://10.0.0.1:7070 --keys KEYS -- python3 train.py\n");
  AddJoinOption(command, &args->join);
  AddKeysOption(command, keys_folder.get());
  AddOption(command, "--servers N", &args->server_count,
            fmt::format("server processes [{}]", args->server_count), InRange(0, 1024));
  AddOption(command, "--workers N", workers.get(),
            "worker processes; auto: one per GPU; without GPUs, one per 8 cores, or per --threads "
            "cores [auto]",
            AnyWordFrom({"auto"}) | InRange(0, 1024));
  AddOption(command, "--device NAME", &args->device,
            "where the workers compute: cpu, cuda (the GPUs in turn), cuda:N; auto: GPUs if "
            "there are any [auto]");
  AddOption(command, "--threads N", &args->threads,
            "computing threads of each worker; 0: as the job says, with auto by cores [0]",
            InRange(0, 1024));
  AddBindOptions(command, "the servers listen; port 0: any free one each", &args->bind,
                 &args->insecure);
  AddInterfaceOption(command, interface.get());
  AddOption(command, "--lanes N", &args->lanes, "serving threads of each server; 0: by cores [0]",
            InRange(0, 256));
  AddLabelOption(command, &args->labels);
  AddDataOptions(command, &args->data_path, &args->data_cache);
  AddOption(command, "--log-dir PATH", &args->log_dir,
            "a log file for each process; without it they write to standard error");
  AddFlag(command, "--preload", is_preloaded.get(), kPreloadHelp);
  AddMaxRestartsOption(command, &args->restarts_max);
  AddStartTimeoutOption(command, &args->start_timeout_ms);
  AddVerboseOption(command, &args->is_verbose);
  StopAtRest(command);
  return [args, keys_folder, interface, workers, is_preloaded, &command, program]() -> Result<int> {
    PANDO_ASSIGN_OR_RETURN(args->bind, ChooseBind(args->bind, *interface));
    if (args->bind.starts_with("tcp://")) {
      PANDO_ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(args->bind));
      endpoint.port = 0;
      args->worker_bind = endpoint.ToString();
    }
    PANDO_ASSIGN_OR_RETURN(const std::vector<std::string> words,
                           ProgramWords(RemainingWords(command), program));
    if (!words.empty()) {
      PANDO_ASSIGN_OR_RETURN(args->worker, FindProgram(words));
      args->worker.is_preloaded = *is_preloaded;
      PANDO_ASSIGN_OR_RETURN(const Labels labels, ParseLabels(args->labels));
      std::vector<std::string>& variables = args->worker.variables;
      if (!labels.rack.empty()) variables.push_back("PANDO_RACK=" + labels.rack);
      if (!labels.rack.empty()) variables.push_back("PANDO_BIND=" + args->worker_bind);
      if (args->insecure) variables.emplace_back("PANDO_INSECURE=1");
    }
    return KeepNode(*args, *keys_folder, *workers);
  };
}

Subcommand AddStatusCommand(CLI::App& app) {
  auto options = std::make_shared<StatusOptions>();
  CLI::App& command =
      DeclareCommand(app, "status", "Lists the processes of a run and what each one is doing.",
                     "LINES: what carries the payloads of its connections (tcp, ipc, shm). HEARD: "
                     "when the\nscheduler last had a message of it.\n\n"
                     "Examples:\n  pando status runs/first\n"
                     "  pando status --join tcp://127.0.0.1:7070\n");
  AddRunAddress(command, &options->run);
  AddFlag(command, "--json", &options->is_json, "as JSON");
  AddStartTimeoutOption(command, &options->timeout_ms);
  return [options] { return ShowStatus(*options); };
}

Subcommand AddDrainCommand(CLI::App& app) {
  return AddOrderCommand(
      app, CommandKind::kDrain, "drain",
      "Takes a worker or server out of a run: others take over its work, then it leaves.",
      "drain runs/first worker-1");
}

Subcommand AddSnapshotCommand(CLI::App& app) {
  return AddOrderCommand(app, CommandKind::kSnapshot, "snapshot",
                         "Stores a snapshot of a run now, in addition to those of snapshot.every.",
                         "snapshot runs/first");
}

Subcommand AddStopCommand(CLI::App& app) {
  return AddOrderCommand(app, CommandKind::kStop, "stop",
                         "Ends a run early, as Ctrl-C does; pando resume continues it.",
                         "stop runs/first");
}

}  // namespace pando
