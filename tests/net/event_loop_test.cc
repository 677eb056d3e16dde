#include "net/event_loop.h"

#include <fcntl.h>
#include <unistd.h>

#include <thread>

#include "common/endpoint.h"
#include "common/mailbox.h"
#include "common/unique_fd.h"
#include "net/heartbeat_sender.h"
#include "net/scheduler_client.h"
#include "proto/message_limits.h"
#include "tests/net/net_fixture.h"

namespace pando {
namespace {

// A core that answers every Failure with its text, and status requests with "{}".
class EchoCore : public ProtocolCore {
 public:
  EchoCore(PeerId self, Outbox& outbox) : self_(self), outbox_(outbox) {}
  void OnMessage(Micros, const Envelope& envelope) override {
    messages.push_back(envelope);
    if (const auto* failure = std::get_if<Failure>(&envelope.message)) {
      outbox_.Send({.sender = self_, .receiver = envelope.sender, .message = *failure});
    } else if (std::holds_alternative<StatusRequest>(envelope.message)) {
      outbox_.Send({.sender = self_, .receiver = envelope.sender, .message = StatusReport{"{}"}});
    }
  }
  void Tick(Micros now) override {
    ticked_at.push_back(now);
    if (now >= deadline) deadline = kNever;
  }
  Micros NextDeadline() const override { return deadline; }

  std::vector<Envelope> messages;
  std::vector<Micros> ticked_at;
  Micros deadline = kNever;

 private:
  PeerId self_;
  Outbox& outbox_;
};

// A bound core whose loop runs on a separate thread.
struct EchoProcess {
  explicit EchoProcess(ZmqContext& context,
                       PeerId self_peer = {kSchedulerNode, NewIncarnation(), 0})
      : self(self_peer), transport(context, self, {}), core(self, transport) {
    const Result<std::string> bound = transport.Bind(kAnyTcpPort);
    REQUIRE(bound.ok());
    endpoint = *bound;
    thread = std::thread([this] { RunLoop(core, transport, {.stop = &stop}); });
  }
  ~EchoProcess() { Stop(); }
  void Stop() {
    stop.Request();
    if (thread.joinable()) thread.join();
  }

  PeerId self;
  Transport transport;
  EchoCore core;
  StopFlag stop;
  std::string endpoint;
  std::thread thread;
};

TEST_CASE("a local source is looked at in its interval though the core waits for nothing") {
  ZmqContext context;
  const PeerId self = NewPeer(1);
  Transport transport(context, self, {});
  EchoCore core(self, transport);  // no deadline, and no message comes
  int look_count = 0;
  const auto look = [&](Micros) { ++look_count; };
  RunLoop(core, transport,
          {.local = {{.handle = look, .wake_interval = std::chrono::milliseconds(1)}},
           .is_finished = [&] { return look_count == 3; }});
  CHECK(core.ticked_at.size() == 3);
}

TEST_CASE("a turn that has handled all messages is not over before its shortest time") {
  ZmqContext context;
  const PeerId self = NewPeer(1);
  Transport transport(context, self, {});
  EchoCore core(self, transport);
  const UniqueFd always(open("/dev/zero", O_RDONLY));  // no wait is longer than a turn
  constexpr Micros kTurn = std::chrono::milliseconds(2);
  RunLoop(core, transport,
          {.local = {{.fd = always.get(), .handle = [](Micros) {}}},
           .is_finished = [&] { return core.ticked_at.size() == 3; },
           .turn_min = [&] { return kTurn; }});
  CHECK(core.ticked_at[2] - core.ticked_at[0] >= kTurn);  // a tick is not a turn's begin
  core.ticked_at.clear();
  core.deadline = SteadyNow() + kTurn;  // it ends the turn
  RunLoop(core, transport,
          {.is_finished = [&] { return core.deadline == kNever; },
           .turn_min = [] { return Micros(std::chrono::seconds(100)); }});
  CHECK(core.ticked_at.size() >= 2);
}

TEST_CASE("a core hears messages and its answers go out") {
  ZmqContext context;
  EchoProcess process(context);
  const PeerId self = NewPeer(2);
  Transport transport(context, self, {});
  REQUIRE(transport.Dial(process.self, process.endpoint).ok());
  for (int i = 0; i < 600; ++i) {  // more than a turn takes
    transport.Send(TextFrom(self, process.self, std::to_string(i)));
  }
  for (int i = 0; i < 600; ++i) CHECK(Text(MustReceive(transport)) == std::to_string(i));
}

TEST_CASE("a core ticks at its deadline without traffic") {
  ZmqContext context;
  const PeerId self = NewPeer(2);
  Transport transport(context, self, {});
  EchoCore core(self, transport);
  core.deadline = SteadyNow() + std::chrono::milliseconds(30);
  const Micros deadline = core.deadline;
  const LoopEnd end =
      RunLoop(core, transport, {.is_finished = [&] { return core.deadline == kNever; }});
  CHECK(end == LoopEnd::kFinished);
  CHECK(core.ticked_at.back() >= deadline);
  CHECK(core.ticked_at.size() < 10);  // it slept in between
}

TEST_CASE("a local mailbox wakes the loop") {
  ZmqContext context;
  const PeerId self = NewPeer(2);
  Transport transport(context, self, {});
  EchoCore core(self, transport);
  Mailbox<int> mailbox;
  std::vector<int> taken;
  LoopOptions options;
  options.local.push_back({mailbox.fd(), [&](Micros) {
                             for (const int item : mailbox.Drain()) taken.push_back(item);
                           }});
  options.is_finished = [&] { return taken.size() == 100; };
  std::thread maker([&] {
    for (int i = 0; i < 100; ++i) CHECK(mailbox.Push(i));
  });
  CHECK(RunLoop(core, transport, options) == LoopEnd::kFinished);
  maker.join();
  CHECK(taken.back() == 99);
}

TEST_CASE("the loop stops when asked by another thread") {
  ZmqContext context;
  EchoProcess process(context);
  process.Stop();
  CHECK(!process.thread.joinable());
}

TEST_CASE("a worker dials the lanes of a view that the core enters, before it does") {
  ZmqContext context;
  const PeerId self = NewPeer(2);
  Transport transport(context, self, {});
  EchoCore core(self, transport);
  const PeerId scheduler_peer{kSchedulerNode, NewIncarnation(), 0};
  Transport scheduler(context, scheduler_peer, {});
  const Result<std::string> bound = scheduler.Bind(kAnyTcpPort);
  REQUIRE(bound.ok());
  REQUIRE(transport.Dial({kSchedulerNode, Incarnation(), 0}, *bound).ok());
  transport.Send(TextFrom(self, scheduler_peer, "hello"));
  MustReceive(scheduler);

  View view{.id = {1, 1}};
  view.nodes = {{.node = NodeId(1),
                 .incarnation = Incarnation(11),
                 .role = Role::kServer,
                 .lane_endpoints = {*bound, *bound}},
                {.node = NodeId(2), .incarnation = self.incarnation, .role = Role::kWorker}};
  const PeerId lane0{NodeId(1), Incarnation(11), 0};
  const PeerId lane1{NodeId(1), Incarnation(11), 1};
  view.shards = {{.primary = lane0, .in_sync_backups = {lane1}}};
  View older = view;
  older.id = {0, 9};
  older.nodes.clear();
  older.shards.clear();
  for (const View& each : {view, older}) {
    scheduler.Send({.sender = scheduler_peer, .receiver = self, .message = ViewUpdate{each}});
  }
  size_t view_count = 0;
  LoopOptions options;
  options.next_view = [&](const Envelope& envelope) {
    const SharedView& next = std::get<ViewUpdate>(envelope.message).view;
    return next->id == view.id ? std::optional(next) : std::nullopt;
  };
  options.on_view = [&](const View& newest) {
    CHECK(core.messages.size() == view_count++);
    CHECK(DialView(transport, Role::kWorker, self, newest).ok());
  };
  options.is_finished = [&] { return core.messages.size() == 2; };
  RunLoop(core, transport, options);
  CHECK(view_count == 1);
  CHECK(transport.dialed().size() == 3);
  CHECK(std::ranges::count(transport.dialed(), lane1) == 1);

  const PeerId relay{NodeId(5), Incarnation(55), 0};
  REQUIRE(transport.Dial(relay, *bound).ok());
  CHECK(DialView(transport, Role::kWorker, self, older, PrimariesTalk::kNo, {relay}).ok());
  CHECK(transport.dialed().size() == 2);
  CHECK(DialView(transport, Role::kWorker, self, older).ok());
  CHECK(transport.dialed().size() == 1);  // the scheduler's line stays
}

TEST_CASE("a view with a broken endpoint is an error that names it") {
  ZmqContext context;
  const PeerId self = NewPeer(2);
  Transport transport(context, self, {});
  View view;
  view.nodes = {{.node = NodeId(1), .role = Role::kServer, .lane_endpoints = {"udp://x"}}};
  CHECK(DialView(transport, Role::kWorker, self, view).ok());  // it holds no shard
  view.shards = {{}, {.primary = {NodeId(1), {}, 0}}};
  const Status status = DialView(transport, Role::kWorker, self, view);
  REQUIRE(!status.ok());
  CHECK(status.message().find("udp://x") != std::string::npos);
}

TEST_CASE(
    "a view that names a lane which cannot be dialed reaches neither the sockets nor the core") {
  ZmqContext context;
  const PeerId scheduler_peer{kSchedulerNode, NewIncarnation(), 0};
  Transport scheduler(context, scheduler_peer, {});
  const Result<std::string> bound = scheduler.Bind(kAnyTcpPort);
  REQUIRE(bound.ok());
  const PeerId self = NewPeer(2);
  std::vector<std::string> warnings;
  Transport transport(context, self,
                      {.on_warning = [&](const std::string& text) { warnings.push_back(text); }});
  EchoCore core(self, transport);
  REQUIRE(transport.Dial({kSchedulerNode, Incarnation(), 0}, *bound).ok());
  transport.Send(TextFrom(self, scheduler_peer, "hello"));
  MustReceive(scheduler);

  const PeerId lane{NodeId(1), Incarnation(11), 1};
  View good{.id = {1, 1}};
  good.nodes = {{.node = lane.node,
                 .incarnation = lane.incarnation,
                 .role = Role::kServer,
                 .lane_endpoints = {*bound, *bound}}};
  good.shards = {{.primary = lane}};
  std::vector<View> bad(7, good);
  bad[0].nodes.clear();
  bad[1].nodes[0].incarnation = Incarnation(12);  // another life
  bad[2].nodes[0].lane_endpoints.pop_back();
  bad[3].nodes[0].lane_endpoints[1] = "udp://x";
  bad[4].nodes[0].lane_endpoints[1] = "tcp://*:1";
  bad[5].shards[0] = {.in_sync_backups = {{NodeId(9), Incarnation(9), 0}}};
  bad[6].shards[0].syncing_backups = {{{NodeId(9), Incarnation(9), 0}, {1, 1}}};
  for (const View& view : bad)
    scheduler.Send({.sender = scheduler_peer, .receiver = self, .message = ViewUpdate{view}});
  scheduler.Send({.sender = scheduler_peer, .receiver = self, .message = ViewUpdate{good}});
  size_t dialed_count = 0;
  LoopOptions options;
  options.next_view = [](const Envelope& envelope) {
    return std::optional(std::get<ViewUpdate>(envelope.message).view);
  };
  options.on_view = [&](const View& view) {
    ++dialed_count;
    CHECK(DialView(transport, Role::kWorker, self, view).ok());
  };
  options.is_finished = [&] { return !core.messages.empty(); };
  RunLoop(core, transport, options);
  CHECK(dialed_count == 1);
  CHECK(core.messages.size() == 1);
  CHECK(transport.counters().bad_views == bad.size());
  REQUIRE(warnings.size() == 1);  // a peer is named once a minute
  CHECK(warnings[0].find("lane 1 of node 1 without its endpoint") != std::string::npos);
}

TEST_CASE("a lane dials the backups of the shards whose primary it is, and no others") {
  ZmqContext context;
  const PeerId self{NodeId(1), Incarnation(11), 1};
  const PeerId in_sync{NodeId(2), Incarnation(22), 0};
  const PeerId syncing{NodeId(3), Incarnation(33), 1};
  const PeerId of_others{NodeId(3), Incarnation(33), 0};
  const PeerId scheduler{kSchedulerNode, Incarnation(), 0};
  const PeerId scheduler_line{kSchedulerNode, Incarnation(), 1};
  Transport transport(context, self, {});
  REQUIRE(transport.Dial(scheduler, "tcp://127.0.0.1:9").ok());
  View view;
  for (const PeerId& peer : {self, in_sync, syncing}) {
    view.nodes.push_back({.node = peer.node,
                          .incarnation = peer.incarnation,
                          .role = Role::kServer,
                          .lane_endpoints = {"tcp://127.0.0.1:9", "tcp://127.0.0.1:10"}});
  }
  const PeerId other_lane{NodeId(1), Incarnation(11), 0};
  view.shards = {{.primary = self, .in_sync_backups = {in_sync}},
                 {.primary = self, .syncing_backups = {{syncing, {1, 1}}, {in_sync, {1, 2}}}},
                 {.primary = other_lane, .in_sync_backups = {of_others}},
                 {.primary = in_sync, .in_sync_backups = {self}},
                 {}};
  REQUIRE(DialView(transport, Role::kServer, self, view).ok());
  CHECK(transport.dialed() == std::vector<PeerId>{scheduler_line, in_sync, syncing});

  view.shards[1].syncing_backups.clear();
  REQUIRE(DialView(transport, Role::kServer, self, view).ok());
  CHECK(transport.dialed() == std::vector<PeerId>{scheduler_line, in_sync});

  // A backup that the view has no endpoint of: another life, and a lane too many.
  for (const PeerId& stranger :
       {PeerId{NodeId(2), Incarnation(23), 0}, PeerId{syncing.node, syncing.incarnation, 2}}) {
    view.shards[1].in_sync_backups = {stranger};
    const Status status = DialView(transport, Role::kServer, self, view);
    REQUIRE(!status.ok());
    CHECK(status.message().find(std::to_string(stranger.node.value())) != std::string::npos);
    CHECK(transport.dialed() == std::vector<PeerId>{scheduler_line, in_sync});
  }
}

TEST_CASE("heartbeats arrive while every other thread of the process is busy") {
  ZmqContext context;
  const PeerId scheduler_peer{kSchedulerNode, NewIncarnation(), 0};
  Transport scheduler(context, scheduler_peer, {});
  const Result<std::string> bound = scheduler.Bind(kAnyTcpPort);
  REQUIRE(bound.ok());
  const PeerId self = NewPeer(4);
  HeartbeatState state{
      .job = JobId(8),
      .generation = 3,
      .view = {1, 2},
      .content = {.activity = Activity::kComputing, .step = Step(5), .micro_batch_us = 1500}};
  HeartbeatSender sender(
      context,
      {.self = self, .scheduler_endpoint = *bound, .interval = std::chrono::milliseconds(5)},
      state);
  REQUIRE(sender.Start().ok());
  for (int i = 0; i < 5; ++i) {  // this thread, the process's only other one, never yields to it
    const Envelope envelope = MustReceive(scheduler);
    CHECK(envelope.sender == self);
    CHECK(envelope.job == JobId(8));
    CHECK(envelope.generation == 3);
    CHECK(envelope.view == ViewId{1, 2});
    CHECK(envelope.receiver == PeerId{kSchedulerNode, Incarnation(), 0});
    CHECK(std::get<Heartbeat>(envelope.message).micro_batch_us == 1500);
    CHECK(std::get<Heartbeat>(envelope.message).activity == Activity::kComputing);
    CHECK(std::get<Heartbeat>(envelope.message).step == Step(5));
  }
  state.scheduler = scheduler_peer;  // as it is once a view has named it
  state.content.activity = Activity::kWaitingForParameters;
  state.content.waiting_for = NewPeer(1, 2);
  state.waiting_since = SteadyNow() - std::chrono::milliseconds(700);
  sender.Update(state);
  Heartbeat heartbeat;
  PeerId receiver;
  while (heartbeat.activity != Activity::kWaitingForParameters) {
    const Envelope envelope = MustReceive(scheduler);
    receiver = envelope.receiver;
    heartbeat = std::get<Heartbeat>(envelope.message);
  }
  CHECK(receiver == scheduler_peer);
  CHECK(heartbeat.waiting_for == state.content.waiting_for);
  CHECK(heartbeat.waiting_ms >= 700);
}

TEST_CASE("heartbeats reach a scheduler of which the leading one has told") {
  ZmqContext context, others;
  std::vector<std::unique_ptr<Transport>> schedulers;
  std::vector<std::string> endpoints;
  for (int i = 0; i < 2; ++i) {
    const PeerId peer{kSchedulerNode, NewIncarnation(), 0};
    schedulers.push_back(std::make_unique<Transport>(others, peer, Transport::Options{}));
    const Result<std::string> bound = schedulers.back()->Bind(kAnyTcpPort);
    REQUIRE(bound.ok());
    endpoints.push_back(*bound);
  }
  const PeerId self = NewPeer(4);
  HeartbeatSender sender(
      context,
      {.self = self, .scheduler_endpoint = endpoints[0], .interval = std::chrono::milliseconds(5)},
      {});
  REQUIRE(sender.Start().ok());
  MustReceive(*schedulers[0]);
  schedulers[0]->Send({.sender = {kSchedulerNode, Incarnation(9), 0},
                       .receiver = self,
                       .message = HeartbeatAck{endpoints}});
  schedulers[0].reset();
  const Envelope heard = MustReceive(*schedulers[1]);
  CHECK(heard.sender == self);
  CHECK(std::get<Heartbeat>(heard.message).schedulers_hash == HashEndpoints(endpoints));
  CHECK(context.schedulers().endpoints() == endpoints);
  CHECK_FALSE(sender.is_given_up());
  schedulers[1]->Send({.sender = {kSchedulerNode, Incarnation(9), 0},
                       .receiver = self,
                       .message = HeartbeatAck{.is_given_up = true}});
  MustBecome(*schedulers[1], [&] { return sender.is_given_up(); });
}

TEST_CASE("a process reads the last line of its log, as text on one line") {
  const ScratchFolder folder;
  const std::string path = folder.path() / "log";
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600));
  const auto write_text = [&](const std::string& text) {
    CHECK(write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  };
  OwnLog log(file.get());
  CHECK(log.LastLine().empty());
  write_text("first\nsecond \x1b[31mred\n\n");
  CHECK(log.LastLine() == "second  [31mred");
  write_text("unfinished");
  CHECK(log.LastLine() == "unfinished");
  write_text("\n" + std::string(2000, 'x') + "\n");
  CHECK(log.LastLine() == std::string(kLogLineBytesMax, 'x'));
  OwnLog later(file.get());
  CHECK(later.LastLine().empty());  // what came before it is of another time
  write_text("new\n");
  CHECK(later.LastLine() == "new");
  const StopFlag no_file;
  CHECK(OwnLog(no_file.fd()).LastLine().empty());
}

TEST_CASE("a heartbeat sender with a broken endpoint does not start") {
  ZmqContext context;
  HeartbeatSender sender(context, {.self = NewPeer(1), .scheduler_endpoint = "nowhere"}, {});
  CHECK(!sender.Start().ok());
}

TEST_CASE("a client gets the status, or an error if there is no answer") {
  ZmqContext context;
  EchoProcess process(context);
  const Result<std::string> status =
      RequestStatus(context, process.endpoint, SteadyNow() + kEventDeadline, "");
  REQUIRE(status.ok());
  CHECK(*status == "{}");
  process.Stop();
  const Result<std::string> nobody =
      RequestStatus(context, process.endpoint, SteadyNow() + std::chrono::milliseconds(20), "");
  REQUIRE(!nobody.ok());
  CHECK(nobody.status().code() == StatusCode::kUnavailable);
  CHECK(nobody.status().message().find(process.endpoint) != std::string::npos);
}

}  // namespace
}  // namespace pando
