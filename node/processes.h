// The entry points of Pando's processes, one file each; the subcommands parse the options and call
// them. Each returns an exit code (exit_codes.h), reports to standard error through spdlog's
// default logger (node/log.h, set up by the caller), and stops on SIGINT, SIGTERM and SIGHUP
// (node/shutdown.h). A server or worker that receives Stop from the scheduler returns
// kExitCompleted for every reason; a code of failure names the process as the root cause.
#pragma once

#include <cstdint>
#include <string>

#include "plan/job.h"
#include "proto/messages.h"

namespace pando {

struct SchedulerArgs {
  Job job;                    // resolved and valid
  std::string bind;           // "tcp://127.0.0.1:0" (0: any free port) or "ipc://PATH"
  bool insecure = false;      // binding beyond loopback was asked for
  std::string run_dir;        // an existing run folder with job.toml; see RunFolder::Open
  std::string endpoint_file;  // where to write the bound endpoint and a newline; may be a pipe
                              // under /dev/fd. Empty: written nowhere
  bool is_resumed = false;    // all processes of the run are gone: a new generation begins from the
                              // last snapshot (`pando resume`)
};
// Owns the run: waits for everybody, schedules, writes metrics.csv, events.jsonl, final.safetensors
// and summary.json in the run folder, and draws the progress line. Goes on with what an earlier
// life of the scheduler has left in the folder's journal.
int RunScheduler(const SchedulerArgs& args);

struct ServerArgs {
  std::string join;    // the scheduler's endpoint
  std::string bind;    // "tcp://HOST:0", or "ipc://PREFIX": lane i binds PREFIX-i
  uint32_t lanes = 0;  // 0: by cores
  uint32_t wanted_rank = kAnyRank;
  bool insecure = false;
  uint32_t start_timeout_ms = 60000;  // without an answer it gives up (kExitUnreached)
  bool is_verbose = false;
};
int RunServer(const ServerArgs& args);

struct WorkerArgs {
  std::string join;
  uint32_t threads = 0;  // 0: as the job says
  uint32_t wanted_rank = kAnyRank;
  std::string device = "auto";  // auto, cpu, cuda or cuda:N
  std::string data_path;        // where this machine has the data; empty: as the job says
  std::string data_cache;       // and keeps decoded photographs; empty: as the job says
  uint32_t start_timeout_ms = 60000;
  bool is_verbose = false;
};
int RunWorker(const WorkerArgs& args);

struct StatusArgs {
  std::string join;
  bool json = false;  // the scheduler's own JSON instead of a table
  uint32_t start_timeout_ms = 5000;
};
// Asks a running scheduler for its members; prints the answer to standard output.
int RunStatus(const StatusArgs& args);

struct SerialArgs {
  Job job;              // resolved and valid; job.device says where
  std::string run_dir;  // an existing run folder with job.toml
};
// The same job in this process: the reference of invariant I5. Writes the same run folder.
int RunSerial(const SerialArgs& args);

}  // namespace pando
