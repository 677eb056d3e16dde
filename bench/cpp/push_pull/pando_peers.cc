// A server and a worker as in the product, without a real scheduler, model and data set: the plan
// is that of the load.
#include <fmt/format.h>
#include <unistd.h>

#include "bench/cpp/push_pull/load_generator.h"
#include "bench/cpp/push_pull/peers.h"
#include "common/allocation.h"
#include "common/float_env.h"
#include "net/event_loop.h"
#include "net/heartbeat.h"
#include "net/incarnation.h"
#include "proto/join.h"
#include "run/snapshot_store.h"
#include "server/lane.h"

namespace pando::bench {
namespace {

// Registers until the scheduler answers, without a limit: the parent process watches the time.
ViewMember::Identity Join(Transport& transport, Incarnation self, Register registration) {
  TransportOutbox outbox(transport);
  JoinCore join(self, std::move(registration), outbox);
  RunLoop(join, transport, {.is_finished = [&] { return join.has_answer(); }});
  return {join.self(0), join.scheduler(), join.job()};
}

Register Registration(Role role, uint32_t rank) {
  return {.role = role,
          .host = "localhost",
          .process_id = static_cast<uint32_t>(getpid()),
          .wanted_rank = rank};
}

HeartbeatState StateOf(const ViewMember::Identity& identity) {
  return {.job = identity.job, .scheduler = identity.scheduler};
}

// Where what travels is made, once the transport shares memory.
Result<BufferSource> SourceFor(const Load& load, Transport& transport) {
  if (!load.shares_memory) return BufferSource();
  Result<std::shared_ptr<SharedPool>> pool = SharedPool::Create();
  if (!pool.ok()) return pool.status();
  if (Status s = transport.ShareMemory({.pool = *pool, .is_required = true, .on_note = {}});
      !s.ok())
    return s;
  return (*pool)->source();
}

Transport::Options Warning() {
  return {.on_warning = [](const std::string& text) { fmt::print(stderr, "{}\n", text); }};
}

}  // namespace

Status RunPandoServer(const PeerArgs& args) {
  SetFloatEnvironment();
  KeepFreedMemory();
  ZmqContext context;
  const Incarnation incarnation = NewIncarnation();
  Transport transport(context, {kUnknownNode, incarnation, 0}, Warning());
  const Result<std::string> bound = transport.Bind(args.endpoint);
  if (!bound.ok()) return bound.status();
  if (Status s = transport.Dial({kSchedulerNode, {}, 0}, args.join); !s.ok()) return s;
  Register registration = Registration(Role::kServer, args.rank);
  registration.lane_endpoints = {*bound};
  const ViewMember::Identity identity = Join(transport, incarnation, std::move(registration));

  const JobPlan plan = PlanOf(args.load);
  HeartbeatSender heartbeat(context, {.self = identity.self, .scheduler_endpoint = args.join},
                            StateOf(identity));
  if (Status s = heartbeat.Start(); !s.ok()) return s;
  SnapshotStore store({.folder = "", .process = incarnation, .job = identity.job});
  SnapshotStore::Port snapshots(store);
  TransportOutbox outbox(transport);
  Result<BufferSource> buffers = SourceFor(args.load, transport);
  if (!buffers.ok()) return buffers.status();
  Lane lane({.identity = identity, .kind = "server", .buffers = *std::move(buffers)}, plan,
            snapshots, outbox);
  Status dialed;
  RunLoop(lane, transport,
          {.enters = [&](const Envelope& envelope) { return lane.WillEnter(envelope); },
           .on_view =
               [&](const View& view) {
                 dialed = DialView(transport, Role::kServer, lane.self(), view);
               },
           .is_finished = [&] { return lane.finished() || !dialed.ok(); }});
  return dialed;
}

Status RunPandoWorker(const PeerArgs& args, CounterSlot& counters) {
  SetFloatEnvironment();
  KeepFreedMemory();
  ZmqContext context;
  const Incarnation incarnation = NewIncarnation();
  Transport transport(context, {kUnknownNode, incarnation, 0}, Warning());
  if (Status s = transport.Dial({kSchedulerNode, {}, 0}, args.join); !s.ok()) return s;
  const ViewMember::Identity identity =
      Join(transport, incarnation, Registration(Role::kWorker, args.rank));

  const JobPlan plan = PlanOf(args.load);
  HeartbeatSender heartbeat(context, {.self = identity.self, .scheduler_endpoint = args.join},
                            StateOf(identity));
  if (Status s = heartbeat.Start(); !s.ok()) return s;
  TransportOutbox outbox(transport);
  Result<BufferSource> buffers = SourceFor(args.load, transport);
  if (!buffers.ok()) return buffers.status();
  LoadGenerator load(args.load, identity, args.rank, plan, counters, outbox, *buffers);
  Status dialed;
  RunLoop(load, transport,
          {.enters = [&](const Envelope& envelope) { return load.WillEnter(envelope); },
           .on_view =
               [&](const View& view) {
                 dialed = DialView(transport, Role::kWorker, identity.self, view);
               },
           .is_finished = [&] { return !dialed.ok() || !transport.sharing_failure().ok(); }});
  return dialed.ok() ? transport.sharing_failure() : dialed;
}

}  // namespace pando::bench
