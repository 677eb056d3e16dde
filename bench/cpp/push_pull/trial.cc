#include "bench/cpp/push_pull/trial.h"

#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "bench/cpp/push_pull/peers.h"
#include "bench/cpp/push_pull/shared_counters.h"
#include "bench/cpp/push_pull/stand_in_scheduler.h"
#include "common/check.h"
#include "common/cpu/float_arrays.h"
#include "common/float_buffer.h"
#include "common/system.h"
#include "net/event_loop.h"
#include "node/supervisor.h"

namespace pando::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kAnswerMax = std::chrono::seconds(30);
constexpr double kLookIntervalS = 0.002;
constexpr double kGiga = 1e9;

// SchedulerThread runs the loop of the stand-in scheduler on a separate thread.
class SchedulerThread {
 public:
  SchedulerThread(const Load& load, std::string endpoint)
      : plan_(MakePlan(load)),
        core_(load, plan_, self_, transport_),
        endpoint_(std::move(endpoint)) {}
  ~SchedulerThread() {
    stop_.Request();
    if (thread_.joinable()) thread_.join();
  }
  SchedulerThread(const SchedulerThread&) = delete;

  Status Start() {
    PANDO_ASSIGN_OR_RETURN(const std::string bound, transport_.Bind(endpoint_));
    thread_ = std::thread([this] { RunLoop(core_, transport_, {.stop = &stop_}); });
    return Status();
  }

 private:
  const JobPlan plan_;
  const PeerId self_{kSchedulerNode, NewIncarnation(), 0};
  ZmqContext context_{KeysOfBench(KeyRole::kAdmin)};
  Transport transport_{context_, self_, {.linger_ms = 0}};
  StandInScheduler core_;
  const std::string endpoint_;
  StopFlag stop_;
  std::thread thread_;
};

// Returns the processor time, in seconds, of a child that has not been reaped.
double ReadCpuSeconds(pid_t pid) {
  clockid_t clock;
  timespec time{};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0.0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::vector<std::string> LoadWords(const Load& load) {
  std::vector<std::string> words{"--bytes",   std::to_string(load.shard_bytes),
                                 "--shards",  std::to_string(load.shards_per_server),
                                 "--servers", std::to_string(load.servers),
                                 "--workers", std::to_string(load.workers)};
  if (load.has_momentum) words.push_back("--momentum");
  if (load.has_barrier) words.push_back("--barrier");
  if (load.copies) words.push_back("--copy");
  if (load.shares_memory) words.push_back("--shm");
  return words;
}

std::vector<std::string> With(std::vector<std::string> words,
                              const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

struct PeerSpec {
  std::string name;
  std::vector<std::string> args;  // after the slot
  bool counts = false;            // its slot counts payload and latencies
};

// Peers keeps the processes of one trial and their counters.
class Peers {
 public:
  struct Reading {
    Clock::time_point at;
    uint64_t payload_bytes = 0;
    uint64_t message_count = 0;
    double cpu_s = 0.0;
    std::vector<uint64_t> latency_counts;  // of the processes that count
  };

  Peers(SharedCounters counters, ShutdownSignal& shutdown)
      : counters_(std::move(counters)), shutdown_(shutdown) {}

  // Starts a process, which gets the next slot.
  Status Start(const PeerSpec& spec, const std::string& folder) {
    const std::string log = fmt::format("{}/{}.log", folder, spec.name);
    std::error_code ignored;
    std::filesystem::remove(log, ignored);
    const size_t slot = names_.size();
    names_.push_back(spec.name);
    if (spec.counts) counting_.push_back(slot);
    const std::vector<std::string> head{"peer", "--counters", std::to_string(counters_.fd()),
                                        "--slot", std::to_string(slot)};
    return group_.Start({.name = spec.name,
                         .title = spec.name,
                         .args = With(head, spec.args),
                         .log_path = log,
                         .inherited_fd = counters_.fd()});
  }

  // Waits until every process that counts has had an answer after `since`. A machine that is busy
  // with other work may take longer than the window of a measurement.
  Status WaitForAnswers(const Reading& since) {
    const auto deadline = Clock::now() + kAnswerMax;
    while (true) {
      size_t answered = 0;
      for (size_t i = 0; i < counting_.size(); ++i)
        answered += counters_.slot(counting_[i]).latency_count > since.latency_counts[i];
      if (answered == counting_.size()) return Status();
      if (Clock::now() >= deadline)
        return Unavailable("nothing was answered within 30 s; is the machine overloaded?");
      PANDO_RETURN_IF_ERROR(Sleep(kLookIntervalS));
    }
  }

  // Sleeps. A child that ends meanwhile is an error, and so is a signal.
  Status Sleep(double seconds) {
    const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                          std::chrono::duration<double>(seconds));
    const int signals[] = {shutdown_.fd()};
    do {
      group_.Wait(until, signals);
      if (shutdown_.Take() != 0) return Interrupted("stopped by a signal");
      if (!failure_.ok()) return failure_;
    } while (Clock::now() < until);
    return Status();
  }

  Reading Read() const {
    Reading reading{.at = Clock::now()};
    for (const size_t slot : counting_) {
      reading.payload_bytes += counters_.slot(slot).payload_bytes;
      reading.message_count += counters_.slot(slot).message_count;
      reading.latency_counts.push_back(counters_.slot(slot).latency_count);
    }
    for (const std::string& name : names_)
      reading.cpu_s += ReadCpuSeconds(group_.Pid(name).value_or(0));
    return reading;
  }

  // Returns the figures as JSON. REQUIRES: WaitForAnswers(start) has returned OK.
  std::string FiguresSince(const Reading& start) const {
    const Reading end = Read();
    const double seconds = std::chrono::duration<double>(end.at - start.at).count();
    const double gigabytes = static_cast<double>(end.payload_bytes - start.payload_bytes) / kGiga;
    std::vector<double> latencies_us;
    for (size_t i = 0; i < counting_.size(); ++i) {
      const auto some = LatenciesSince(counters_.slot(counting_[i]), start.latency_counts[i]);
      latencies_us.insert(latencies_us.end(), some.begin(), some.end());
    }
    std::ranges::sort(latencies_us);
    return fmt::format(
        R"({{"gb_per_s":{},"messages_per_s":{},"latency_p50_us":{},"latency_p99_us":{},"cpu_s_per_gb":{}}})",
        gigabytes / seconds, static_cast<double>(end.message_count - start.message_count) / seconds,
        Quantile(latencies_us, 0.5), Quantile(latencies_us, 0.99),
        (end.cpu_s - start.cpu_s) / gigabytes);
  }

 private:
  void OnExit(const ProcessExit& exit) {
    if (!failure_.ok()) return;
    std::string text = fmt::format("its process {} ended: {}", exit.spec.title, ExitText(exit));
    for (const std::string& line : LogTail(exit.spec.log_path, 5)) text += "; " + line;
    failure_ = Internal(text);
  }

  SharedCounters counters_;
  ShutdownSignal& shutdown_;
  ProcessGroup group_{[this](const ProcessExit& exit) { OnExit(exit); }};
  std::vector<std::string> names_;
  std::vector<size_t> counting_;  // slots
  Status failure_;
};

Result<std::string> Measure(const TrialOptions& options, const std::vector<PeerSpec>& specs,
                            ShutdownSignal& shutdown) {
  PANDO_ASSIGN_OR_RETURN(SharedCounters counters, SharedCounters::Create(specs.size()));
  Peers peers(std::move(counters), shutdown);
  for (const PeerSpec& spec : specs) {
    PANDO_RETURN_IF_ERROR(peers.Start(spec, options.folder));
  }
  PANDO_RETURN_IF_ERROR(peers.WaitForAnswers(peers.Read()));
  PANDO_RETURN_IF_ERROR(peers.Sleep(options.warm_up_s));
  const Peers::Reading start = peers.Read();
  PANDO_RETURN_IF_ERROR(peers.Sleep(options.window_s));
  PANDO_RETURN_IF_ERROR(peers.WaitForAnswers(start));
  return peers.FiguresSince(start);
}

Result<std::string> RunPando(const TrialOptions& options, ShutdownSignal& shutdown) {
  const Load& load = options.load;
  const std::string join = fmt::format("ipc://{}/scheduler", options.folder);
  SchedulerThread scheduler(load, join);
  PANDO_RETURN_IF_ERROR(scheduler.Start());
  const std::vector<std::string> common = With(LoadWords(load), {"--join", join});
  std::vector<PeerSpec> peers;
  for (uint32_t i = 0; i < load.servers; ++i) {
    const std::string rank = std::to_string(i);
    const std::string endpoint = options.kind == "pando-tcp"
                                     ? "tcp://127.0.0.1:0"
                                     : fmt::format("ipc://{}/server-{}", options.folder, i);
    peers.push_back({"server-" + rank, With(common, {"--kind", "pando-server", "--rank", rank,
                                                     "--endpoint", endpoint})});
  }
  for (uint32_t i = 0; i < load.workers; ++i) {
    const std::string rank = std::to_string(i);
    peers.push_back(
        {"worker-" + rank, With(common, {"--kind", "pando-worker", "--rank", rank}), true});
  }
  return Measure(options, peers, shutdown);
}

Result<std::string> RunRaw(const TrialOptions& options, ShutdownSignal& shutdown) {
  const std::string name = options.kind.substr(0, 3);  // tcp, zmq
  const std::string endpoint =
      options.kind == "zmq-ipc" ? fmt::format("ipc://{}/raw", options.folder) : "tcp://127.0.0.1:0";
  const std::vector<std::string> common = With(LoadWords(options.load), {"--endpoint", endpoint});
  return Measure(
      options,
      {{"server", With(common, {"--kind", name + "-server"})},
       {"client", With(common, {"--kind", name + "-client", "--server-slot", "0"}), true}},
      shutdown);
}

}  // namespace

double Quantile(const std::vector<double>& ascending, double share) {
  PANDO_CHECK(!ascending.empty() && share >= 0.0 && share <= 1.0);
  const double place = share * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<size_t>(std::floor(place));
  const size_t above = std::min(below + 1, ascending.size() - 1);
  return ascending[below] +
         (place - static_cast<double>(below)) * (ascending[above] - ascending[below]);
}

Result<std::string> RunTrial(const TrialOptions& options, ShutdownSignal& shutdown) {
  if (options.kind.starts_with("pando-")) return RunPando(options, shutdown);
  if (options.kind != "memcpy" && options.kind != "add") return RunRaw(options, shutdown);
  const auto operation = options.kind == "add" ? MemoryOperation::kAdd : MemoryOperation::kCopy;
  return fmt::format(R"({{"gb_per_s":{}}})",
                     MemoryGbPerS(operation, options.load, options.window_s));
}

// Looks at the clock once per turn over all buffers.
double MemoryGbPerS(MemoryOperation operation, const Load& load, double seconds) {
  const size_t count = load.shard_bytes / sizeof(float);
  std::vector<FloatBuffer> a, b;
  for (uint32_t i = 0; i < load.shards_per_server; ++i) {
    a.emplace_back(count);
    b.emplace_back(count);
  }
  const Clock::time_point start = Clock::now();
  double elapsed = 0.0;
  uint64_t operations = 0;
  do {
    for (uint32_t i = 0; i < load.shards_per_server; ++i) {
      if (operation == MemoryOperation::kCopy) {
        std::memcpy(a[i].data(), b[i].data(), load.shard_bytes);
      } else {
        AddSpans(a[i].data(), a[i].span(), b[i].span());
      }
    }
    asm volatile("" ::: "memory");  // the compiler must not notice that no result is read
    operations += load.shards_per_server;
    elapsed = std::chrono::duration<double>(Clock::now() - start).count();
  } while (elapsed < seconds);
  return 2e-9 * static_cast<double>(load.shard_bytes) * static_cast<double>(operations) / elapsed;
}

}  // namespace pando::bench
