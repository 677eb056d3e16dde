// NodeRun: `pando node`: the servers and workers of one machine of a cluster, kept running until
// the run ends or the machine is asked to give them up.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "node/supervisor.h"

namespace pando {

struct NodeArgs {
  std::string join;                        // the scheduler's endpoint
  std::string bind = "tcp://127.0.0.1:0";  // of the servers; "ipc://PREFIX": server i's is PREFIX-i
  bool insecure = false;
  uint32_t server_count = 1;
  std::optional<uint32_t> worker_count;  // none: by GPUs, or by cores
  std::string device = "auto";           // of the workers: auto, cpu, cuda or cuda:N
  uint32_t threads = 0;                  // per worker; 0: by cores, or as the job says
  uint32_t lanes = 0;                    // per server; 0: by cores
  std::string data_path;                 // where this machine has the data; empty: as the job says
  std::string data_cache;                // and keeps decoded photographs; empty: as the job says
  std::string log_dir;                   // a log for each process; empty: standard error
  uint32_t restarts_max = kRestartsMaxDefault;
  uint32_t start_timeout_ms = 60000;
  bool is_verbose = false;
  std::string program = "/proc/self/exe";  // what runs as server and worker
};

// How many workers, and with how many threads each.
struct WorkerShare {
  uint32_t worker_count = 0;
  uint32_t threads = 0;  // 0: as the job says
};
// Automatic: a worker for each GPU. On the CPU a worker for every 8 cores, or one for each
// `threads` cores where that is given; the cores are shared out, and a worker computes its
// micro-batches side by side. `gpu_count`: of those the workers may use.
WorkerShare ShareOf(const NodeArgs& args, uint32_t core_count, uint32_t gpu_count);

// Returns an exit code. SIGINT and SIGTERM drain the processes, a second one kills them.
int RunNode(const NodeArgs& args);

}  // namespace pando
