#include "net/event_loop.h"

#include <thread>

#include "common/mailbox.h"
#include "net/client.h"
#include "net/heartbeat.h"
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

// A bound core whose loop runs on a thread of its own.
struct EchoProcess {
  explicit EchoProcess(ZmqContext& context,
                       PeerId self_peer = {kSchedulerNode, NewIncarnation(), 0})
      : self(self_peer), transport(context, self, {}), outbox(transport), core(self, outbox) {
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
  TransportOutbox outbox;
  EchoCore core;
  StopFlag stop;
  std::string endpoint;
  std::thread thread;
};

TEST_CASE("a local source is looked at in its interval though the core waits for nothing") {
  ZmqContext context;
  const PeerId self = NewPeer(1);
  Transport transport(context, self, {});
  TransportOutbox outbox(transport);
  EchoCore core(self, outbox);  // no deadline, and no message comes
  int look_count = 0;
  const auto look = [&](Micros) { ++look_count; };
  RunLoop(core, transport,
          {.local = {{.handle = look, .wake_interval = std::chrono::milliseconds(1)}},
           .is_finished = [&] { return look_count == 3; }});
  CHECK(core.ticked_at.size() == 3);
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
  for (int i = 0; i < 600; ++i) CHECK(TextOf(MustReceive(transport)) == std::to_string(i));
}

TEST_CASE("a core ticks at its deadline without traffic") {
  ZmqContext context;
  const PeerId self = NewPeer(2);
  Transport transport(context, self, {});
  TransportOutbox outbox(transport);
  EchoCore core(self, outbox);
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
  TransportOutbox outbox(transport);
  EchoCore core(self, outbox);
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

TEST_CASE("a worker dials the lanes of a newer view before the core sees it") {
  ZmqContext context;
  const PeerId self = NewPeer(2);
  Transport transport(context, self, {});
  TransportOutbox outbox(transport);
  EchoCore core(self, outbox);
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
  View older = view;
  older.id = {0, 9};
  older.nodes.clear();
  for (const View& each : {view, older}) {
    scheduler.Send({.sender = scheduler_peer, .receiver = self, .message = ViewUpdate{each}});
  }
  size_t view_count = 0;
  LoopOptions options;
  options.on_view = [&](const View& newest) {
    CHECK(core.messages.size() == view_count++);
    CHECK(DialView(transport, Role::kWorker, newest).ok());
  };
  options.is_finished = [&] { return core.messages.size() == 2; };
  RunLoop(core, transport, options);
  CHECK(view_count == 1);
  const PeerId lane1{NodeId(1), Incarnation(11), 1};
  CHECK(transport.dialed().size() == 3);
  CHECK(std::ranges::count(transport.dialed(), lane1) == 1);

  CHECK(DialView(transport, Role::kWorker, older).ok());
  CHECK(transport.dialed().size() == 1);  // the scheduler's line stays
}

TEST_CASE("a view with a broken endpoint is an error that names it") {
  ZmqContext context;
  Transport transport(context, NewPeer(2), {});
  View view;
  view.nodes = {{.node = NodeId(1), .role = Role::kServer, .lane_endpoints = {"udp://x"}}};
  const Status status = DialView(transport, Role::kWorker, view);
  REQUIRE(!status.ok());
  CHECK(status.message().find("udp://x") != std::string::npos);
}

TEST_CASE("heartbeats arrive while every other thread of the process is busy") {
  ZmqContext context;
  const PeerId scheduler_peer{kSchedulerNode, NewIncarnation(), 0};
  Transport scheduler(context, scheduler_peer, {});
  const Result<std::string> bound = scheduler.Bind(kAnyTcpPort);
  REQUIRE(bound.ok());
  const PeerId self = NewPeer(4);
  HeartbeatState state{.job = JobId(8), .activity = Activity::kComputing, .step = Step(5)};
  HeartbeatSender sender(context,
                         {.self = self,
                          .scheduler = scheduler_peer,
                          .scheduler_endpoint = *bound,
                          .interval = std::chrono::milliseconds(5)},
                         state);
  REQUIRE(sender.Start().ok());
  for (int i = 0; i < 5; ++i) {  // this thread, the process's only other one, never yields to it
    const Envelope envelope = MustReceive(scheduler);
    CHECK(envelope.sender == self);
    CHECK(envelope.job == JobId(8));
    CHECK(std::get<Heartbeat>(envelope.message).activity == Activity::kComputing);
    CHECK(std::get<Heartbeat>(envelope.message).step == Step(5));
  }
  state.activity = Activity::kWaitingForParameters;
  state.waiting_for = NewPeer(1, 2);
  state.waiting_since = SteadyNow() - std::chrono::milliseconds(700);
  sender.Update(state);
  Heartbeat heartbeat;
  while (heartbeat.activity != Activity::kWaitingForParameters) {
    heartbeat = std::get<Heartbeat>(MustReceive(scheduler).message);
  }
  CHECK(heartbeat.waiting_for == state.waiting_for);
  CHECK(heartbeat.waiting_ms >= 700);
}

TEST_CASE("a heartbeat sender with a broken endpoint does not start") {
  ZmqContext context;
  HeartbeatSender sender(context, {.self = NewPeer(1), .scheduler_endpoint = "nowhere"}, {});
  CHECK(!sender.Start().ok());
}

TEST_CASE("a client gets the status, or learns that nobody answers") {
  ZmqContext context;
  EchoProcess process(context);
  const Result<std::string> status =
      RequestStatus(context, process.endpoint, SteadyNow() + kTestDeadline);
  REQUIRE(status.ok());
  CHECK(*status == "{}");
  process.Stop();
  const Result<std::string> nobody =
      RequestStatus(context, process.endpoint, SteadyNow() + std::chrono::milliseconds(20));
  REQUIRE(!nobody.ok());
  CHECK(nobody.status().code() == StatusCode::kUnavailable);
  CHECK(nobody.status().message().find(process.endpoint) != std::string::npos);
}

}  // namespace
}  // namespace pando
