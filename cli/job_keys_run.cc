// The keys of [worker], [snapshot], [verify] and [run]: nothing there changes the result.
#include "cli/job_key_makers.h"

namespace pando {
namespace {

void AddSafetyKeys(std::vector<JobKey>* keys) {
  using enum ValueKind;
  keys->push_back(MakeKey(kCount,
                          {"snapshot.every", "--snapshot-every", "steps",
                           "steps between snapshots of the job; 0: only at its end"},
                          PANDO_FIELD(snapshot_every), kSteps));
  keys->push_back(MakeKey(
      kCount, {"snapshot.keep", "", "snapshots", "complete snapshots that are kept, the newest"},
      PANDO_FIELD(snapshot_keep), kSnapshots));
  keys->push_back(MakeKey(
      kBool,
      {"snapshot.best", "--snapshot-best", "",
       "versions that are evaluated are stored too, and the one of the best test accuracy is kept"},
      PANDO_FIELD(snapshot_best)));
  keys->push_back(MakeKey(kCount,
                          {"verify.every", "--verify-every", "micro-batches",
                           "one micro-batch in so many is computed by two workers and compared, to "
                           "find machines that compute wrongly; 0: none"},
                          PANDO_FIELD(verify_every), kSteps));
}

void AddWorkerKeys(std::vector<JobKey>* keys) {
  keys->push_back(MakeKey(ValueKind::kChoice,
                          {"worker.parameter_residency", "", "",
                           "what a worker holds of the parameters: all, or layer by layer, pulled "
                           "before use and dropped after it: less memory, more traffic, the same "
                           "result"},
                          PANDO_FIELD(parameter_residency)));
}

// Of [run]: the processes, and what they compute and speak with.
void AddProcessKeys(std::vector<JobKey>* keys) {
  using enum ValueKind;
  keys->push_back(MakeKey(kChoice,
                          {"run.strategy", "--strategy", "",
                           "who makes the next version: parameter servers, the workers among "
                           "themselves, or one process (--serial)"},
                          PANDO_FIELD(strategy)));
  keys->push_back(MakeKey(
      kChoice,
      {"run.allreduce", "", "",
       "how the workers of --strategy allreduce sum; auto: by NCCL where each has a GPU of its "
       "own, else by gloo, by ring where a step's gradients have 2 MiB or more"},
      PANDO_FIELD(allreduce)));
  keys->push_back(MakeKey(
      kCount, {"run.workers", "--workers", "processes", "worker processes: they compute gradients"},
      PANDO_FIELD(workers), kThreads));
  keys->push_back(MakeKey(
      kCount,
      {"run.servers", "--servers", "processes", "server processes: they hold the parameters"},
      PANDO_FIELD(servers), kThreads));
  keys->push_back(MakeKey(kCount,
                          {"run.replicas", "--replicas", "servers",
                           "servers that hold each shard; with 2, a server's death costs nothing"},
                          PANDO_FIELD(replicas), kReplicas));
  keys->push_back(MakeKey(kText,
                          {"run.device", "--device", "",
                           "where workers compute: auto (GPUs, each worker's its own, if there are "
                           "any), cpu, cuda, or cuda:N for one of them"},
                          PANDO_FIELD(device)));
  keys->push_back(MakeKey(
      kCount,
      {"run.threads", "--threads", "per worker", "computing threads of each worker; on a GPU one"},
      PANDO_FIELD(threads), kThreads));
  keys->push_back(MakeKey(kCount,
                          {"run.reader_threads", "--reader-threads", "per worker",
                           "threads of each worker that read and decode samples ahead"},
                          PANDO_FIELD(reader_threads), kThreads));
  keys->push_back(MakeKey(kText,
                          {"run.data_cache", "--data-cache", "folder",
                           "where workers keep photographs once decoded and resized, 256 GiB of "
                           "each split at most; empty: nowhere"},
                          PANDO_FIELD(data_cache)));
  keys->push_back(MakeKey(
      kCount, {"run.lanes", "", "per server", "serving threads of each server; 0: by cores"},
      PANDO_FIELD(lanes), kLanes));
  keys->push_back(
      MakeChoice({"run.transport", "--transport", "",
                  "what carries gradients and parameters: shm is memory that processes of one host "
                  "share, auto is shm where that can be; tcp, and ipc (Unix sockets between the "
                  "processes of pando train), share none"},
                 {"auto", "tcp", "ipc", "shm"}, PANDO_FIELD(transport)));
  keys->push_back(
      MakeKey(kChoice,
              {"run.host_sum", "--host-sum", "",
               "whether the gradients of one host's workers are summed there first, so "
               "that one copy leaves it: auto, of the shards whose server is on another "
               "host; always; never"},
              PANDO_FIELD(host_sum)));
}

// Of [run]: what the run leaves, and its timers.
void AddRecordKeys(std::vector<JobKey>* keys) {
  using enum ValueKind;
  keys->push_back(MakeKey(kText, {"run.name", "", "", "the run's name; empty: MODEL-DATA-TIME"},
                          PANDO_FIELD(name)));
  keys->push_back(MakeKey(kText,
                          {"run.dir", "--run-dir", "folder", "the run's folder; empty: runs/NAME"},
                          PANDO_FIELD(run_dir)));
  keys->push_back(MakeKey(kCount,
                          {"run.log_every", "", "steps", "steps between rows of metrics.csv"},
                          PANDO_FIELD(log_every_steps), kAtLeastOne));
  keys->push_back(MakeKey(kText,
                          {"run.timeline", "--timeline", "file",
                           "the trace to write of what every process does and when, for Perfetto "
                           "or chrome://tracing; empty: none"},
                          PANDO_FIELD(timeline)));
  keys->back().flag_alias = "--timeline-filename";  // Horovod's
  keys->push_back(MakeKey(kText,
                          {"run.timeline_steps", "--timeline-steps", "steps",
                           "the steps that it records: A:B is A to B - 1; empty: all, until a "
                           "process has written 256 MiB"},
                          PANDO_FIELD(timeline_steps)));
  keys->push_back(MakeKey(kCount,
                          {"run.heartbeat_ms", "", "ms", "time between a process's signs of life"},
                          PANDO_FIELD(heartbeat_ms), kMilliseconds));
  keys->push_back(
      MakeKey(kCount, {"run.lease_ms", "", "ms", "silence after which a process counts as dead"},
              PANDO_FIELD(lease_ms), kMilliseconds));
  keys->push_back(MakeKey(
      kCount, {"run.start_timeout_ms", "", "ms", "how long to wait until every process is there"},
      PANDO_FIELD(start_timeout_ms), kMilliseconds));
  keys->push_back(MakeKey(kCount,
                          {"run.scheduler_timeout_ms", "", "ms",
                           "silence of the scheduler after which servers and workers leave"},
                          PANDO_FIELD(scheduler_timeout_ms), kMilliseconds));
}

}  // namespace

void AddRunKeys(std::vector<JobKey>* keys) {
  AddWorkerKeys(keys);
  AddSafetyKeys(keys);
  AddProcessKeys(keys);
  AddRecordKeys(keys);
}

}  // namespace pando

#undef PANDO_FIELD
