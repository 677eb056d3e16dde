// Takes one sample of `pando bench push-pull`: starts the processes of one measurement, lets them
// warm up, reads their counters and processor clocks over a window of time, and kills them.
#pragma once

#include <string>

#include "bench/cpp/push_pull/load.h"
#include "common/result.h"
#include "node/shutdown_signal.h"

namespace pando::bench {

struct TrialOptions {
  // pando-tcp, pando-ipc, pando-shm, zmq-tcp, zmq-ipc, tcp; memcpy, add: one core's memory.
  std::string kind;
  Load load;
  std::string folder;  // for sockets and logs
  double warm_up_s = 0.2;
  double window_s = 0.5;
};

// Returns JSON on one line, by the names of the figures: gb_per_s (pushed and pulled payload),
// messages_per_s, latency_p50_us and latency_p99_us (push to reply), cpu_s_per_gb (of all processes
// of the trial); for memory only gb_per_s. A signal ends a trial (kInterrupted). No process
// outlives the call. `shutdown` outlives it.
Result<std::string> RunTrial(const TrialOptions& options, ShutdownSignal& shutdown);

// Measures the limit of one core's memory in GB/s: memcpy, or a += b of floats, by one thread, over
// as many buffers as shards are in flight. It counts as push-pull does: the bytes that arrive (b,
// the source) and the bytes that result (a, the copy), 2 × shard_bytes per operation.
enum class MemoryOperation : uint8_t { kCopy, kAdd };
double MemoryGbPerS(MemoryOperation operation, const Load& load, double seconds);

// Returns the value that `share` of the values, ascending, do not exceed, interpolated linearly.
// REQUIRES: `ascending` is not empty.
double Quantile(const std::vector<double>& ascending, double share);

}  // namespace pando::bench
