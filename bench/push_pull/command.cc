// The flags of `pando bench push-pull`, and of the processes that it starts.
#include <fmt/format.h>

#include <memory>

#include "bench/commands.h"
#include "bench/harness/units.h"
#include "bench/push_pull/peers.h"
#include "bench/push_pull/push_pull.h"

namespace pando::bench {
namespace {

constexpr uint32_t kProcessesMax = 64;  // of a role
constexpr uint32_t kInFlightMax = 1024;
constexpr uint32_t kRoundsMax = 10'000;
constexpr uint64_t kShardBytesMin = 128, kShardBytesMax = 64 << 20;
constexpr uint64_t kLineBytes = 64;

struct Flags {
  PushPullOptions options;
  std::vector<std::string> bytes;
  std::string out = kDefaultOut;
  bool is_quick = false;
};

Result<std::vector<uint64_t>> ParseSizes(const std::vector<std::string>& texts) {
  std::vector<uint64_t> sizes;
  for (const std::string& text : texts) {
    const Result<uint64_t> bytes = ParseBytes(text, kShardBytesMax);
    if (!bytes.ok()) return InvalidArgument("--bytes: " + bytes.status().message());
    if (*bytes < kShardBytesMin || *bytes % kLineBytes != 0) {
      return InvalidArgument(
          fmt::format("--bytes {}: a shard is a multiple of {} bytes and has at least {}", text,
                      kLineBytes, kShardBytesMin));
    }
    sizes.push_back(*bytes);
  }
  return sizes;
}

// A few seconds, small and large shards, all transports; what was asked for by a flag stays.
void MakeQuick(const CLI::App& command, Flags* flags) {
  const auto was_given = [&](const char* flag) { return command.count(flag) != 0; };
  PushPullOptions& o = flags->options;
  if (!was_given("--bytes")) flags->bytes = {"4KiB", "1MiB"};
  if (!was_given("--servers")) o.servers = {1};
  if (!was_given("--workers")) o.workers = {1};
  if (!was_given("--optimizer")) o.optimizers = {"sum"};
  if (!was_given("--rounds")) o.rounds = 2;
  if (!was_given("--seconds")) o.times.window_s = 0.05;
  if (!was_given("--warm-up")) o.times.warm_up_s = 0.02;
}

int Run(const CLI::App& command, Flags flags) {
  if (flags.is_quick) MakeQuick(command, &flags);
  if (!flags.bytes.empty()) {
    Result<std::vector<uint64_t>> sizes = ParseSizes(flags.bytes);
    if (!sizes.ok()) return Report(sizes.status());
    flags.options.bytes = *std::move(sizes);
  }
  ShutdownSignal shutdown;  // before any thread
  return Finish(RunPushPull(flags.options, shutdown, ProgressLine()), flags.out);
}

void AddShape(CLI::App& command, PushPullOptions* o) {
  const CLI::Range processes(1u, kProcessesMax);
  command.add_option("--servers", o->servers, "How many servers, each in turn")
      ->delimiter(',')
      ->check(processes)
      ->capture_default_str();
  command.add_option("--workers", o->workers, "How many workers, each in turn")
      ->delimiter(',')
      ->check(processes)
      ->capture_default_str();
  command
      .add_option("--transport", o->transports,
                  "tcp, ipc, shm (shared memory; messages by the link's own connection)")
      ->delimiter(',')
      ->check(CLI::IsMember({"tcp", "ipc", "shm"}))
      ->capture_default_str();
  command.add_option("--optimizer", o->optimizers, "sum (SGD), sgd-momentum")
      ->delimiter(',')
      ->check(CLI::IsMember({"sum", "sgd-momentum"}))
      ->capture_default_str();
  command.add_option("--in-flight", o->in_flight, "Shards of each server, all under way at once")
      ->check(CLI::Range(1u, kInFlightMax))
      ->capture_default_str();
}

void AddTimes(CLI::App& command, PushPullOptions* o) {
  command.add_option("--rounds", o->rounds, "Samples of each point; all points take turns")
      ->check(CLI::Range(1u, kRoundsMax))
      ->capture_default_str();
  command.add_option("--seconds", o->times.window_s, "Time of one sample")
      ->check(CLI::Range(0.01, 600.0))
      ->capture_default_str();
  command.add_option("--warm-up", o->times.warm_up_s, "Before each sample, after the first reply")
      ->check(CLI::Range(0.0, 600.0))
      ->capture_default_str();
}

}  // namespace

std::function<int()> AddPushPull(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "push-pull",
      "GB/s, messages/s, latency and processor time of pushes and their replies, between workers\n"
      "and servers in processes of their own, beside memcpy, a += b, raw TCP and raw ZeroMQ.");
  const auto flags = std::make_shared<Flags>();
  command.add_option("--bytes", flags->bytes, "Sizes of shards [4KiB,64KiB,256KiB,1MiB,4MiB]")
      ->delimiter(',');
  AddShape(command, &flags->options);
  AddTimes(command, &flags->options);
  command.add_flag("--barrier", flags->options.has_barrier,
                   "Nothing of a step before all of the step before is there, as in training (P4)");
  command.add_flag("--copy", flags->options.copies,
                   "Workers copy parameters out of the received messages, as in training");
  command.add_flag("--quick", flags->is_quick, "A few seconds in all: does it work?");
  AddOutOption(command, &flags->out);
  return [&command, flags] { return Run(command, *flags); };
}

std::function<int()> AddPeer(CLI::App& app) {
  CLI::App& command = *app.add_subcommand("peer", "")->group("");
  const auto args = std::make_shared<PeerArgs>();
  command.add_option("--kind", args->kind)->required();
  command.add_option("--counters", args->counters_fd)->required();
  command.add_option("--slot", args->slot)->required();
  command.add_option("--server-slot", args->server_slot);
  command.add_option("--rank", args->rank);
  command.add_option("--join", args->join);
  command.add_option("--endpoint", args->endpoint);
  command.add_option("--bytes", args->load.shard_bytes)->required();
  command.add_option("--shards", args->load.shards_per_server)->required();
  command.add_option("--servers", args->load.servers);
  command.add_option("--workers", args->load.workers);
  command.add_flag("--momentum", args->load.has_momentum);
  command.add_flag("--barrier", args->load.has_barrier);
  command.add_flag("--copy", args->load.copies);
  command.add_flag("--shm", args->load.shares_memory);
  return [args] { return RunPeer(*args); };
}

}  // namespace pando::bench
