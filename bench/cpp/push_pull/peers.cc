#include "bench/cpp/push_pull/peers.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "common/exit_codes.h"

namespace pando::bench {
namespace {

Status Run(const PeerArgs& args, const SharedCounters& counters) {
  CounterSlot& ours = counters.slot(args.slot);
  const CounterSlot& server = counters.slot(args.server_slot);
  if (args.kind == "pando-server") return RunPandoServer(args);
  if (args.kind == "pando-worker") return RunPandoWorker(args, ours);
  if (args.kind == "zmq-server") return RunZmqServer(args, ours);
  if (args.kind == "zmq-client") return RunZmqClient(args, ours, server);
  if (args.kind == "tcp-server") return RunTcpServer(args, ours);
  if (args.kind == "tcp-client") return RunTcpClient(args, ours, server);
  return InvalidArgument(fmt::format("no peer is called '{}'", args.kind));
}

}  // namespace

uint32_t WaitForPort(const CounterSlot& server) {
  while (server.port == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return server.port;
}

int RunPeer(const PeerArgs& args) {
  const Result<SharedCounters> counters = SharedCounters::Open(args.counters_fd);
  Status status = counters.ok() ? Status() : counters.status();
  if (status.ok() && std::max(args.slot, args.server_slot) >= counters->slot_count())
    status = InvalidArgument("the counters have no such slot");
  if (status.ok()) status = Run(args, *counters);
  if (status.ok()) return kExitCompleted;
  fmt::print(stderr, "{}\n", status.message());
  return ExitCodeOf(status);
}

}  // namespace pando::bench
