// The entry points of Pando's processes (node/*_process.cc, node/fleet/local_run.cc and
// node_run.cc). The subcommands parse the options and call them. Each returns an exit code
// (exit_codes.h), reports to standard error through spdlog's default logger (node/log.h, set up by
// the caller), and stops on SIGINT, SIGTERM and SIGHUP (node/shutdown_signal.h). A server or worker
// that receives Stop returns kExitFailed if the run has failed, else kExitCompleted. Either exit is
// no death, because the process has told its supervisor that the run is over
// (node/leave_notices.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "net/zmq/keys.h"
#include "node/chaos_schedule.h"
#include "node/programs/log_follower.h"
#include "node/programs/program_process.h"
#include "node/service_notice.h"
#include "node/standby/seat.h"
#include "node/supervisor.h"
#include "plan/job.h"
#include "proto/messages.h"

namespace pando {

struct SchedulerArgs {
  Job job;                // resolved and valid; with keys, CheckKeysFit passed
  std::string bind;       // "tcp://127.0.0.1:0" (0: any free port) or "ipc://PATH"
  bool insecure = false;  // binding beyond loopback without keys was requested
  Keys keys = {};
  std::string run_dir;        // an existing run folder with job.toml; see RunFolder::Open
  std::string endpoint_file;  // where to write the bound endpoint and a newline; may be a pipe
                              // under /dev/fd. Empty: written nowhere
  bool is_resumed = false;    // all processes of the run are gone: a new generation begins from the
                              // last snapshot (`pando resume`)
  ServiceManager manager = {};  // gets notices once the endpoint is bound
  // Where the schedulers of a run with standbys meet; none: this is the only one.
  std::optional<EtcdPlace> etcd = {};
  bool is_forced = false;   // begins the run in etcd even if there is an older one (--force)
  bool is_verbose = false;  // the log's; for a scheduler that takes over
  bool is_standby = false;  // has no job file: run_dir gets the run's
};
// Returns an error if this machine's limit of open files is too low for the job's scheduler.
Status CheckFilesOfScheduler(const Job& job);

// Call it before a run is resumed. Returns an error if servers or workers of the run still answer
// at the endpoint, since a new generation would discard them. Takes up to 2 s. Changes no file.
Status CheckNoMemberAnswers(const SchedulerArgs& args);

// Returns an error if the job cannot be run with keys.
Status CheckKeysFit(const Job& job);

// Leads the run: waits for all processes, schedules, writes metrics.csv, events.jsonl,
// final.safetensors and summary.json in the run folder, and draws the progress line. Continues from
// what an earlier life of the scheduler has left in the folder's journal.
int RunScheduler(const SchedulerArgs& args);

// "rack=a", "host=b": parts that fail together, so that a shard's replicas are kept apart. The
// workers of a rack may sum their gradients (P6a).
struct Labels {
  std::string host;  // the machine; empty: the kernel's boot id names it
  std::string rack;
};
Result<Labels> ParseLabels(const std::vector<std::string>& labels);

// The part of a server's and a worker's arguments that is alike.
struct MemberArgs {
  std::string join;  // the scheduler's endpoint
  uint32_t wanted_rank = kAnyRank;
  Keys keys = {};
  uint32_t start_timeout_ms = 60000;  // without an answer it ends (kExitUnreached)
  bool is_verbose = false;
  std::vector<std::string> labels = {};
  // Where it listens; a worker, if it has a rack. Empty: a free port of this machine's address on
  // the way to the scheduler.
  std::string bind = {};
  bool insecure = false;  // it may listen beyond this machine without keys
};

struct ServerArgs : MemberArgs {
  uint32_t lanes = 0;  // 0: by cores. With "ipc://PREFIX" lane i binds PREFIX-i
};
int RunServer(const ServerArgs& args);

struct WorkerArgs : MemberArgs {
  uint32_t threads = 0;         // 0: as the job says
  std::string device = "auto";  // auto, cpu, cuda or cuda:N
  std::string data_path;        // this machine's data; empty: as the job says
  std::string data_cache;       // its cache of decoded photographs; empty: as the job says
};
int RunWorker(const WorkerArgs& args);

// Processes of this machine that are kept running (node/fleet/fleet).
struct FleetArgs {
  WorkerProgram worker;  // the workers' program; without a command they are `pando worker`
  std::string program = "/proc/self/exe";  // the program of scheduler, server and worker
  std::string log_dir;                     // a log for each process; empty: standard error
  uint32_t restarts_max = kRestartsMaxDefault;
  uint32_t start_timeout_ms = 60000;
  bool is_verbose = false;
};

// `pando train` without --serial, and `pando resume`: scheduler, servers and workers as processes
// of this machine, which are kept running until the run ends.
struct LocalRunArgs : FleetArgs {
  Job job;                  // resolved and valid; job.run_dir is its run folder
  bool is_resumed = false;  // the folder holds a run to continue
  ChaosPlan chaos;
  uint32_t group_restarts = 0;  // with allreduce: restarts from the last snapshot after a death
  ShownLogs shown_logs = ShownLogs::kFirst;  // of the run's workers
  std::string keys_folder;                   // the user's; empty: the run makes keys in its folder
  // If set, workers start by themselves. The endpoint and the keys' folder, if the run has keys,
  // are written to this file, with a space between them.
  std::string attach_file;
};

// Returns an exit code. The run folder then always has a summary; with kExitFenced it belongs to
// the other scheduler, which leads the run there. kExitNextRun: the run is completed, and its
// script needs another one.
int RunLocal(const LocalRunArgs& args);

// `pando node`: the servers and workers of one machine of a cluster, which are kept running until
// the run ends or the machine is asked to release them.
struct NodeArgs : FleetArgs {
  std::string join;         // the scheduler's endpoint
  std::string bind;         // as in ServerArgs; with "ipc://PREFIX" server i gets PREFIX-i
  std::string worker_bind;  // of workers with a rack: the same address, any free port
  bool insecure = false;
  Keys keys = {};
  uint32_t server_count = 1;
  std::optional<uint32_t> worker_count;  // none: by GPUs, or by cores
  std::string device = "auto";           // of the workers: auto, cpu, cuda or cuda:N
  uint32_t threads = 0;                  // per worker; 0: by cores, or as the job says
  uint32_t lanes = 0;                    // per server; 0: by cores
  std::vector<std::string> labels;
  std::string data_path;        // this machine's data; empty: as the job says
  std::string data_cache;       // its cache of decoded photographs; empty: as the job says
  ServiceManager manager = {};  // gets notices once the processes are started
};

// The number of workers, and the threads of each.
struct NodeWorkers {
  uint32_t worker_count = 0;
  uint32_t threads = 0;  // 0: as the job says
};
// Without a count: one worker per GPU. On the CPU one worker per 8 cores, or per `threads` cores if
// given. The workers share the cores, and each computes its micro-batches side by side. `gpu_count`
// counts the GPUs that the workers may use.
NodeWorkers ChooseShare(const NodeArgs& args, uint32_t core_count, uint32_t gpu_count);

// Returns an exit code. SIGINT or SIGTERM drains the processes; a second signal kills them.
int RunNode(const NodeArgs& args);

// Runs the same job in this process: the reference of invariant I5. Writes the same run folder.
// REQUIRES: `job` is resolved and valid, and job.run_dir is an existing run folder with job.toml.
int RunSerial(const Job& job);

}  // namespace pando
