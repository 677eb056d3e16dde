// pando-bench is the C++ part of `pando bench`. bench/python/pando_bench has the flags for people,
// the turns and the tables. It starts this program for each sample.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <string>

#include "bench/cpp/commit.h"
#include "bench/cpp/kernels/layer_timer.h"
#include "bench/cpp/members/members_load.h"
#include "bench/cpp/push_pull/peers.h"
#include "bench/cpp/push_pull/trial.h"
#include "common/exit_codes.h"

namespace pando::bench {
namespace {

int Finish(const Status& status) {  // returns an exit code
  if (status.ok()) return kExitCompleted;
  fmt::print(stderr, "{}\n", status.message());
  return ExitCodeFor(status);
}

void AddLoad(CLI::App& command, Load* load) {
  command.add_option("--bytes", load->shard_bytes, "Bytes of a shard")->required();
  command.add_option("--shards", load->shards_per_server, "Shards of each server")->required();
  command.add_option("--servers", load->servers);
  command.add_option("--workers", load->workers);
  command.add_flag("--momentum", load->has_momentum);
  command.add_flag("--barrier", load->has_barrier);
  command.add_flag("--copy", load->copies);
}

std::function<int()> AddTrial(CLI::App& app) {
  CLI::App& command = *app.add_subcommand("trial", "One sample of push-pull, as JSON.");
  const auto options = std::make_shared<TrialOptions>();
  command.add_option("--kind", options->kind)
      ->required()
      ->check(CLI::IsMember(
          {"pando-tcp", "pando-ipc", "pando-shm", "zmq-tcp", "zmq-ipc", "tcp", "memcpy", "add"}));
  command.add_option("--folder", options->folder, "For sockets and logs")->required();
  command.add_option("--seconds", options->window_s);
  command.add_option("--warm-up", options->warm_up_s);
  AddLoad(command, &options->load);
  return [options] {
    options->load.shares_memory = options->kind == "pando-shm";
    ShutdownSignal shutdown;  // must exist before any thread
    const Result<std::string> figures = RunTrial(*options, shutdown);
    if (figures.ok()) fmt::print("{}\n", *figures);
    return Finish(figures.status());
  };
}

std::function<int()> AddLayers(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "layers",
      "Times of the layers of models, as JSON; one pass for each line of standard input.");
  const auto models = std::make_shared<std::vector<std::string>>();
  const auto batch = std::make_shared<uint32_t>(32);
  command.add_option("--model", *models)->required();
  command.add_option("--batch", *batch);
  return [models, batch] { return Finish(RunLayers(*models, *batch)); };
}

std::function<int()> AddMembers(CLI::App& app) {
  CLI::App& command =
      *app.add_subcommand("members", "The load of many members on a scheduler, as JSON.");
  const auto options = std::make_shared<MembersOptions>();
  const auto keys = std::make_shared<std::string>();
  command.add_option("--scheduler", options->scheduler, "Its endpoint")->required();
  command.add_option("--pid", options->scheduler_pid, "Its process")->required();
  command.add_option("--members", options->count);
  command.add_option("--servers", options->servers);
  command.add_option("--first", options->first);
  command.add_option("--killed", options->killed);
  command.add_option("--rest", options->rest_s);
  command.add_option("--keys", *keys, "The folder of the run's keys");
  return [options, keys] {
    if (!keys->empty()) {
      Result<Keys> read = ReadKeys(*keys, KeyRole::kMember);
      if (!read.ok()) return Finish(read.status());
      options->keys = *std::move(read);
    }
    const Result<std::string> figures = MeasureMembers(*options);
    if (figures.ok()) fmt::print("{}\n", *figures);
    return Finish(figures.status());
  };
}

Status RunPeer(const PeerArgs& args) {
  const Result<SharedCounters> counters = SharedCounters::Open(args.counters_fd);
  if (!counters.ok()) return counters.status();
  if (std::max(args.slot, args.server_slot) >= counters->slot_count())
    return InvalidArgument("the counters have no such slot");
  CounterSlot& ours = counters->slot(args.slot);
  const CounterSlot& server = counters->slot(args.server_slot);
  if (args.kind == "pando-server") return RunPandoServer(args);
  if (args.kind == "pando-worker") return RunPandoWorker(args, ours);
  if (args.kind == "zmq-server") return RunZmqServer(args, ours);
  if (args.kind == "zmq-client") return RunZmqClient(args, ours, server);
  if (args.kind == "tcp-server") return RunTcpServer(args, ours);
  if (args.kind == "tcp-client") return RunTcpClient(args, ours, server);
  return InvalidArgument(fmt::format("no peer is called '{}'", args.kind));
}

std::function<int()> AddPeer(CLI::App& app) {
  CLI::App& command = *app.add_subcommand("peer", "A process of a trial.");
  const auto args = std::make_shared<PeerArgs>();
  command.add_option("--kind", args->kind)->required();
  command.add_option("--counters", args->counters_fd)->required();
  command.add_option("--slot", args->slot)->required();
  command.add_option("--server-slot", args->server_slot);
  command.add_option("--rank", args->rank);
  command.add_option("--join", args->join);
  command.add_option("--endpoint", args->endpoint);
  command.add_flag("--shm", args->load.shares_memory);
  AddLoad(command, &args->load);
  return [args] { return Finish(RunPeer(*args)); };
}

int Main(int argc, char** argv) {
  CLI::App app("Measures for `pando bench`, which starts it.", "pando-bench");
  app.footer(kExitCodesHelp);
  app.set_version_flag("--version", std::string(PANDO_COMMIT));
  app.require_subcommand(1);
  std::map<std::string, std::function<int()>> commands{{"trial", AddTrial(app)},
                                                       {"layers", AddLayers(app)},
                                                       {"members", AddMembers(app)},
                                                       {"peer", AddPeer(app)}};
  CLI11_PARSE(app, argc, argv);
  return commands.at(app.get_subcommands().front()->get_name())();
}

}  // namespace
}  // namespace pando::bench

int main(int argc, char** argv) { return pando::bench::Main(argc, argv); }
