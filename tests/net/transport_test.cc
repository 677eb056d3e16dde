#include "net/transport.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <thread>

#include "common/float_buffer.h"
#include "net/socket_address.h"
#include "tests/net/net_fixture.h"

namespace pando {
namespace {

constexpr size_t kMebibyteFloats = (1 << 20) / sizeof(float);

SharedBuffer Ramp(float first) {
  auto buffer = std::make_shared<FloatBuffer>(kMebibyteFloats);
  for (size_t i = 0; i < buffer->size(); ++i) buffer->data()[i] = first + static_cast<float>(i);
  return buffer;
}

void CheckPayloadArrives(Transport& from, const PeerId& sender, Transport& to,
                         const PeerId& receiver) {
  SharedBuffer buffer = Ramp(0.5f);
  const std::weak_ptr<FloatBuffer> source = buffer;
  from.Send(MakePush(sender, receiver, ToBlob(std::move(buffer))));
  Envelope received = MustReceive(to);
  CHECK(received.sender == sender);
  CHECK(received.receiver == receiver);
  const auto floats = Payload(received).floats();
  REQUIRE(floats.size() == kMebibyteFloats);
  CHECK(floats.front() == 0.5f);
  CHECK(floats.back() == 0.5f + static_cast<float>(kMebibyteFloats - 1));
  MustBecome(to, [&] { return source.expired(); });  // an I/O thread lets the buffer go

  const std::weak_ptr<const void> frame = Payload(received).keep_alive();
  CHECK(!frame.expired());
  received = Envelope{};
  CHECK(frame.expired());
}

TEST_CASE("a payload of 1 MiB travels both ways over tcp and ipc and is let go at both ends") {
  const ScratchFolder folder;
  for (const std::string& endpoint : {std::string(kAnyTcpPort), folder.Ipc("lane")}) {
    Pair pair(endpoint);
    CheckPayloadArrives(pair.worker, pair.worker_peer, pair.lane, pair.lane_peer);
    CheckPayloadArrives(pair.lane, pair.lane_peer, pair.worker, pair.worker_peer);
  }
}

TEST_CASE("bytes are counted by what carries them, at both ends") {
  const ScratchFolder folder;
  for (const LineKind kind : {LineKind::kTcp, LineKind::kIpc}) {
    Pair pair(kind == LineKind::kTcp ? std::string(kAnyTcpPort) : folder.Ipc("lane"));
    pair.worker.Send(MakePush(pair.worker_peer, pair.lane_peer, ToBlob(Ramp(0))));
    MustReceive(pair.lane);
    const LineTraffic traffic = pair.context.traffic().Read(kind);
    CHECK(traffic.sent > 4 * kMebibyteFloats);
    CHECK(traffic.sent < 4 * kMebibyteFloats + 1000);
    CHECK(traffic.received == traffic.sent);
    const LineKind other = kind == LineKind::kTcp ? LineKind::kIpc : LineKind::kTcp;
    CHECK(pair.context.traffic().Read(other).sent == 0);
    CHECK(pair.context.traffic().Read(LineKind::kShm).sent == 0);
  }
}

TEST_CASE("a party with a new incarnation keeps its endpoint and dials again") {
  Pair pair(kAnyTcpPort);
  pair.CheckTraffic("first life");
  pair.worker_peer = NewPeer(3);
  pair.worker.SpeakAs(pair.worker_peer);
  CHECK(pair.worker.dialed().empty());
  pair.lane_peer = NewPeer(4, 3);
  pair.lane.SpeakAs(pair.lane_peer);
  REQUIRE(pair.worker.Dial(pair.lane_peer, pair.bound).ok());
  pair.CheckTraffic("second life");
}

TEST_CASE("a party that is bound no more can bind elsewhere") {
  Pair pair(kAnyTcpPort);
  pair.CheckTraffic("before");
  pair.lane.Unbind();
  const std::string other = MustBind(pair.lane, "ipc://@pando-test-" + std::to_string(getpid()));
  REQUIRE(pair.worker.Dial(pair.lane_peer, other).ok());
  pair.CheckTraffic("by an abstract name");
}

TEST_CASE("messages of one peer without a link arrive in the order they were sent") {
  Pair pair(kAnyTcpPort);
  for (int i = 0; i < 1000; ++i) {
    pair.worker.Send(TextFrom(pair.worker_peer, pair.lane_peer, std::to_string(i)));
  }
  for (int i = 0; i < 1000; ++i) CHECK(Text(MustReceive(pair.lane)) == std::to_string(i));
}

TEST_CASE("a port of 0 is filled in and a port in use is named") {
  ZmqContext context;
  Transport first(context, NewPeer(1), {});
  const Result<std::string> bound = first.Bind(kAnyTcpPort);
  REQUIRE(bound.ok());
  CHECK(bound->starts_with("tcp://127.0.0.1:"));
  CHECK(*bound != kAnyTcpPort);

  Transport second(context, NewPeer(2), {});
  const Result<std::string> refused = second.Bind(*bound);
  REQUIRE(!refused.ok());
  CHECK(refused.status().code() == StatusCode::kUnavailable);
  CHECK(refused.status().message() ==
        "cannot bind " + *bound +
            ": Address already in use: another process uses it; stop that one, or choose another "
            "port (0: any free one)");
}

// Returns a connection whose two ends are one socket.
UniqueFd ConnectToItself(uint16_t* port) {
  UniqueFd listener = *ListenTcp("127.0.0.1", 0, port);
  SocketAddress address = MakeAddress("127.0.0.1", *port);
  listener = UniqueFd();
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(bind(fd.get(), address.generic(), address.size) == 0);
  REQUIRE(connect(fd.get(), address.generic(), address.size) == 0);
  return fd;
}

TEST_CASE("a connection to itself is ended, and its port is free") {
  uint16_t port = 0;
  UniqueFd connection = ConnectToItself(&port);
  CHECK(EndSelfConnections());
  CHECK_FALSE(EndSelfConnections());
  char byte = 0;
  CHECK(read(connection.get(), &byte, 1) <= 0);
  connection = UniqueFd();
  CHECK(ListenTcp("127.0.0.1", port, &port).ok());
}

// Brings the bytes of its one connection back, as if that were to itself.
class Echo {
 public:
  Echo() : listener_(*ListenTcp("127.0.0.1", 0, &port_)), thread_([this] { Run(); }) {}
  ~Echo() { thread_.join(); }
  std::string endpoint() const { return "tcp://127.0.0.1:" + std::to_string(port_); }

 private:
  void Run() const {
    const UniqueFd connection(accept(listener_.get(), nullptr, nullptr));
    std::array<char, 4096> bytes;
    ssize_t size = 0;
    do {
      size = read(connection.get(), bytes.data(), bytes.size());
    } while (size > 0 && send(connection.get(), bytes.data(), size, MSG_NOSIGNAL) == size);
  }

  uint16_t port_ = 0;
  const UniqueFd listener_;
  std::thread thread_;
};

TEST_CASE("a transport that gets its own message ends connections to itself") {
  const Echo echo;
  uint16_t port = 0;
  const UniqueFd connection = ConnectToItself(&port);
  ZmqContext context;
  const PeerId member = NewPeer(1);  // as the scheduler names it, after the transport was made
  const PeerId scheduler{kSchedulerNode, {}, 0};
  Transport transport(context, {kUnknownNode, member.incarnation, member.lane}, {});
  REQUIRE(transport.Dial(scheduler, echo.endpoint()).ok());
  const Micros deadline = SteadyNow() + kEventDeadline;
  SocketAddress peer;
  while (getpeername(connection.get(), peer.generic(), &peer.size) == 0) {
    REQUIRE(SteadyNow() < deadline);
    transport.Send({.sender = member, .receiver = scheduler, .message = Heartbeat{}});
    transport.Wait(SteadyNow() + std::chrono::milliseconds(10));
    Envelope envelope;
    CHECK_FALSE(transport.Receive(&envelope));
  }
  CHECK(transport.counters().misattributed > 0);
}

// Leaves the file that a killed process leaves.
void LeaveSocketFile(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  close(fd);
}

TEST_CASE("an ipc path in use is refused, one left by the dead is taken over") {
  const ScratchFolder folder;
  const std::string endpoint = folder.Ipc("lane");
  ZmqContext context;
  {
    Transport first(context, NewPeer(1), {});
    REQUIRE(first.Bind(endpoint).ok());
    Transport second(context, NewPeer(2), {});
    const Result<std::string> refused = second.Bind(endpoint);
    REQUIRE(!refused.ok());
    CHECK(refused.status().message().find("another process uses it") != std::string::npos);
  }
  const std::string abandoned = folder.Ipc("abandoned");
  LeaveSocketFile(abandoned.substr(std::strlen("ipc://")));
  Transport third(context, NewPeer(3), {});
  CHECK(third.Bind(abandoned).ok());
}

TEST_CASE("binding beyond this machine needs to be asked for") {
  ZmqContext context;
  Transport transport(context, NewPeer(1), {});
  const Result<std::string> refused = transport.Bind("tcp://0.0.0.0:0");
  REQUIRE(!refused.ok());
  CHECK(refused.status().message().find("--insecure") != std::string::npos);
  Transport exposed(context, NewPeer(1), {.insecure = true});
  CHECK(exposed.Bind("tcp://*:0").ok());
}

TEST_CASE("a message to a peer without a connection is counted and dropped") {
  Pair pair(kAnyTcpPort);
  pair.CheckTraffic("hello");
  pair.lane.Send(TextFrom(pair.lane_peer, NewPeer(9), "no such peer"));
  pair.worker.Send(TextFrom(pair.worker_peer, NewPeer(9), "no such peer"));
  CHECK(pair.lane.counters().unroutable == 1);
  CHECK(pair.worker.counters().unroutable == 1);
  pair.CheckTraffic("still here");
}

TEST_CASE("a peer may be dialed before it is there") {
  const ScratchFolder folder;
  ZmqContext context;
  const PeerId lane_peer = NewPeer(1);
  const PeerId worker_peer = NewPeer(2);
  Transport worker(context, worker_peer, {});
  REQUIRE(worker.Dial(lane_peer, folder.Ipc("late")).ok());
  worker.Send(TextFrom(worker_peer, lane_peer, "early"));
  Transport lane(context, lane_peer, {});
  REQUIRE(lane.Bind(folder.Ipc("late")).ok());
  CHECK(Text(MustReceive(lane)) == "early");
}

TEST_CASE("dialing again is a no-op, at another endpoint it is another connection") {
  Pair pair(kAnyTcpPort);
  REQUIRE(pair.worker.Dial(pair.lane_peer, pair.bound).ok());
  CHECK(pair.worker.dialed().size() == 1);
  pair.CheckTraffic("once");

  Transport moved(pair.context, pair.lane_peer, {});
  const Result<std::string> bound = moved.Bind(kAnyTcpPort);
  REQUIRE(bound.ok());
  REQUIRE(pair.worker.Dial(pair.lane_peer, *bound).ok());
  CHECK(pair.worker.dialed().size() == 1);
  pair.worker.Send(TextFrom(pair.worker_peer, pair.lane_peer, "moved"));
  CHECK(Text(MustReceive(moved)) == "moved");

  pair.worker.HangUp(pair.lane_peer);
  CHECK(pair.worker.dialed().empty());
}

TEST_CASE("the newest connection of an incarnation gets its answers") {
  Pair pair(kAnyTcpPort);
  pair.CheckTraffic("first");
  Transport again(pair.context, pair.worker_peer, {});
  pair.worker.HangUp(pair.lane_peer);
  REQUIRE(again.Dial(pair.lane_peer, pair.bound).ok());
  again.Send(TextFrom(pair.worker_peer, pair.lane_peer, "second"));
  CHECK(Text(MustReceive(pair.lane)) == "second");
  pair.lane.Send(TextFrom(pair.lane_peer, pair.worker_peer, "to the newest"));
  CHECK(Text(MustReceive(again)) == "to the newest");
}

TEST_CASE("two incarnations, two lanes and two channels of a node are distinguished") {
  ZmqContext context;
  const PeerId scheduler_peer{kSchedulerNode, NewIncarnation(), 0};
  const PeerId whoever{kSchedulerNode, Incarnation(), 0};
  Transport scheduler(context, scheduler_peer, {});
  const Result<std::string> bound = scheduler.Bind(kAnyTcpPort);
  REQUIRE(bound.ok());
  const PeerId first_life = NewPeer(7);
  const PeerId second_life = NewPeer(7);
  const PeerId other_lane{NodeId(7), second_life.incarnation, 1};
  std::vector<std::unique_ptr<Transport>> parties;
  for (const PeerId& peer : {first_life, second_life, other_lane}) {
    parties.push_back(std::make_unique<Transport>(context, peer, Transport::Options{}));
    REQUIRE(parties.back()->Dial(whoever, *bound).ok());
    parties.back()->Send(TextFrom(peer, scheduler_peer, "register"));
    CHECK(MustReceive(scheduler).sender == peer);
  }
  Transport heartbeats(context, second_life, {.channel = Channel::kHeartbeat});
  REQUIRE(heartbeats.Dial(whoever, *bound).ok());
  heartbeats.Send({.sender = second_life, .receiver = whoever, .message = Heartbeat{}});
  CHECK(std::holds_alternative<Heartbeat>(MustReceive(scheduler).message));

  scheduler.Send({.sender = scheduler_peer, .receiver = second_life, .message = HeartbeatAck{}});
  scheduler.Send(TextFrom(scheduler_peer, first_life, "0"));
  scheduler.Send(TextFrom(scheduler_peer, second_life, "1"));
  scheduler.Send(TextFrom(scheduler_peer, other_lane, "2"));
  for (size_t i = 0; i < parties.size(); ++i) {
    CHECK(Text(MustReceive(*parties[i])) == std::to_string(i));
  }
  CHECK(std::holds_alternative<HeartbeatAck>(MustReceive(heartbeats).message));
}

TEST_CASE("a message with a false sender is dropped") {
  std::vector<std::string> warnings;
  Pair pair(kAnyTcpPort,
            {.on_warning = [&](const std::string& text) { warnings.push_back(text); }});
  for (int i = 0; i < 3; ++i) {
    pair.worker.Send(TextFrom(NewPeer(5), pair.lane_peer, "impostor"));
  }
  pair.CheckTraffic("honest");
  CHECK(pair.lane.counters().misattributed == 3);
  CHECK(warnings.size() == 1);  // once per peer

  // A peer that was dialed as one incarnation may not answer as another.
  pair.lane.Send(TextFrom(NewPeer(5), pair.worker_peer, "impostor"));
  pair.CheckTraffic("honest again");
  CHECK(pair.worker.counters().misattributed == 1);
}

TEST_CASE("only the line that was dialed to the scheduler speaks for the scheduler") {
  Pair pair(kAnyTcpPort);
  pair.CheckTraffic("honest");
  const PeerId as_scheduler{kSchedulerNode, pair.worker_peer.incarnation, 0};
  pair.worker.Send(TextFrom(as_scheduler, pair.lane_peer, "obey"));
  pair.CheckTraffic("still honest");
  CHECK(pair.lane.counters().misattributed == 1);

  // A lane that was dialed as a lane.
  pair.lane.Send(
      TextFrom({kSchedulerNode, pair.lane_peer.incarnation, 0}, pair.worker_peer, "obey"));
  pair.CheckTraffic("still honest");
  CHECK(pair.worker.counters().misattributed == 1);

  // On the connection dialed to the scheduler no other node may send.
  Transport scheduler(pair.context, {kSchedulerNode, NewIncarnation(), 0}, {});
  const Result<std::string> bound = scheduler.Bind(kAnyTcpPort);
  REQUIRE(bound.ok());
  const PeerId node_peer = NewPeer(4);
  const PeerId whoever{kSchedulerNode, Incarnation(), 0};
  Transport node(pair.context, node_peer, {});
  REQUIRE(node.Dial(whoever, *bound).ok());
  node.Send(TextFrom(node_peer, whoever, "hello"));
  CHECK(Text(MustReceive(scheduler)) == "hello");
  scheduler.Send(TextFrom(pair.lane_peer, node_peer, "a lane's word"));
  MustBecome(node, [&] { return node.counters().misattributed == 1; });
}

TEST_CASE("of several schedulers the one that answered last gets the messages, or all do") {
  ZmqContext context;
  const PeerId member = NewPeer(7);
  std::vector<std::unique_ptr<Transport>> schedulers;
  std::string endpoints;
  for (int i = 0; i < 2; ++i) {
    const PeerId self{kSchedulerNode, NewIncarnation(), 0};
    schedulers.push_back(std::make_unique<Transport>(context, self, Transport::Options{}));
    endpoints += (i == 0 ? "" : ",") + MustBind(*schedulers.back(), kAnyTcpPort);
  }
  Transport node(context, member, {});
  REQUIRE(node.Dial({kSchedulerNode, {}, 0}, endpoints).ok());
  const auto say = [&] {
    node.Send({.sender = member, .receiver = {kSchedulerNode, {}, 0}, .message = Bye{}});
  };
  say();
  for (const auto& scheduler : schedulers) CHECK(MustReceive(*scheduler).sender == member);
  schedulers[1]->Send({.sender = {kSchedulerNode, Incarnation(9), 0},
                       .receiver = member,
                       .message = ScalarsRequest{}});
  CHECK(MustReceive(node).sender.incarnation == Incarnation(9));
  say();
  MustReceive(*schedulers[1]);
  const Micros silent_at = SteadyNow() + Transport::kSchedulerSilence;
  MustBecome(node, [&] { return SteadyNow() > silent_at; });
  say();
  MustReceive(*schedulers[1]);
  MustReceive(*schedulers[0]);  // its only message since the first one
  CHECK(schedulers[0]->counters().received == 2);
  REQUIRE(node.Dial({kSchedulerNode, {}, 0}, SplitEndpoints(endpoints).front()).ok());
  CHECK(node.dialed().size() == 1);
}

TEST_CASE("a scheduler that becomes known is dialed beside those that were given") {
  ZmqContext context;
  const PeerId member = NewPeer(7);
  std::vector<std::unique_ptr<Transport>> schedulers;
  std::vector<std::string> endpoints;
  for (int i = 0; i < 3; ++i) {
    const PeerId self{kSchedulerNode, NewIncarnation(), 0};
    schedulers.push_back(std::make_unique<Transport>(context, self, Transport::Options{}));
    endpoints.push_back(MustBind(*schedulers.back(), kAnyTcpPort));
  }
  Transport node(context, member, {});
  REQUIRE(node.Dial({kSchedulerNode, {}, 0}, endpoints[0]).ok());
  context.schedulers().Learn({endpoints[1], endpoints[0], "tcp://*:0", "none"});
  MustBecome(node, [&] { return node.dialed().size() == 2; });
  context.schedulers().Learn({endpoints[2]});  // the others are not forgotten
  MustBecome(node, [&] { return node.dialed().size() == 3; });
  node.Send({.sender = member, .receiver = {kSchedulerNode, {}, 0}, .message = Bye{}});
  for (const auto& scheduler : schedulers) CHECK(MustReceive(*scheduler).sender == member);
  node.SpeakAs(NewPeer(7));
  CHECK(node.dialed().empty());
  REQUIRE(node.Dial({kSchedulerNode, {}, 0}, endpoints[0]).ok());
  CHECK(node.dialed().size() == 3);
}

TEST_CASE("a store of files is dialed at the port after a scheduler's") {
  ZmqContext context;
  Transport store(context, {kSchedulerNode, NewIncarnation(), kFilesLane}, {});
  Result<Endpoint> bound = ParseEndpoint(MustBind(store, kAnyTcpPort));
  REQUIRE(bound.ok());
  --bound->port;
  const PeerId member = NewPeer(7);
  Transport node(context, member, {.scheduler_port_offset = 1});
  REQUIRE(
      node.Dial({kSchedulerNode, {}, 0}, "tcp://127.0.0.1:9").ok());  // no process listens there
  context.schedulers().Learn({bound->ToString()});
  MustBecome(node, [&] { return node.dialed().size() == 2; });
  node.Send({.sender = member, .receiver = {kSchedulerNode, {}, 0}, .message = Bye{}});
  CHECK(MustReceive(store).sender == member);
}

// Two connections of one transport would have the same routing id.
TEST_CASE("a scheduler that has two names is dialed once") {
  ZmqContext context;
  const PeerId member = NewPeer(7);
  const PeerId self{kSchedulerNode, NewIncarnation(), 0};
  Transport scheduler(context, self, {});
  const std::string endpoint = MustBind(scheduler, kAnyTcpPort);
  const std::string port = endpoint.substr(endpoint.rfind(':'));
  const auto look_up = [](const Endpoint&) -> Result<std::string> {
    return std::string("127.0.0.1");
  };
  Transport node(context, member, {.look_up = look_up});
  REQUIRE(node.Dial({kSchedulerNode, {}, 0}, "tcp://one" + port + ",tcp://two" + port).ok());
  context.schedulers().Learn({endpoint});
  MustBecome(node, [&] { return node.dialed().size() == 3; });
  for (int i = 0; i < 3; ++i) {
    node.Send({.sender = member, .receiver = {kSchedulerNode, {}, 0}, .message = Bye{}});
    CHECK(MustReceive(scheduler).sender == member);
    scheduler.Send({.sender = self, .receiver = member, .message = ScalarsRequest{}});
    CHECK(MustReceive(node).sender == self);
  }
  CHECK(scheduler.counters().received == 3);
}

TEST_CASE("of many schedulers those that were learned first are forgotten") {
  KnownSchedulers known;
  std::vector<std::string> newest;
  for (uint32_t i = 0; i < kSchedulersMax; ++i) newest.push_back(std::to_string(i));
  known.Learn(newest);
  CHECK(known.endpoints() == newest);
  CHECK(known.version() == kSchedulersMax);
  known.Learn({"another", "0"});
  newest.erase(newest.begin() + 1);
  newest.emplace_back("another");
  CHECK(known.endpoints() == newest);
  known.Learn(newest);
  CHECK(known.version() == kSchedulersMax + 1);
}

TEST_CASE("of several standbys the one whose lane a message names gets it") {
  ZmqContext context;
  const PeerId leader = NewPeer(7);
  Transport node(context, leader, {});
  std::vector<std::unique_ptr<Transport>> standbys;
  const auto peer_at = [](int i) {
    return PeerId{kSchedulerNode, {}, static_cast<uint16_t>(kStandbyLane + i)};
  };
  for (int i = 0; i < 2; ++i) {
    const PeerId self{kSchedulerNode, NewIncarnation(), 0};
    standbys.push_back(std::make_unique<Transport>(context, self, Transport::Options{}));
    REQUIRE(node.Dial(peer_at(i), MustBind(*standbys.back(), kAnyTcpPort)).ok());
  }
  for (const int i : {1, 0, 1, 1, 0}) {
    node.Send(TextFrom(leader, peer_at(i), std::to_string(i)));
    CHECK(Text(MustReceive(*standbys[i])) == std::to_string(i));
    standbys[i]->Send({.sender = peer_at(i), .receiver = leader, .message = ScalarsRequest{}});
    CHECK(MustReceive(node).sender == peer_at(i));
  }
  node.HangUp(peer_at(1));
  node.Send(TextFrom(leader, peer_at(1), "to none"));
  CHECK(node.counters().unroutable == 1);
  for (const auto& standby : standbys) CHECK(standby->counters().misattributed == 0);
  CHECK(standbys[0]->counters().received == 2);
  CHECK(standbys[1]->counters().received == 3);
}

TEST_CASE("a full queue drops messages instead of growing") {
  const ScratchFolder folder;
  ZmqContext context;
  const PeerId lane_peer = NewPeer(1);
  const PeerId worker_peer = NewPeer(2);
  Transport worker(context, worker_peer, {.linger_ms = 0, .queued_messages_max = 4});
  REQUIRE(worker.Dial(lane_peer, folder.Ipc("absent")).ok());
  for (int i = 0; i < 100; ++i) worker.Send(TextFrom(worker_peer, lane_peer, "lost"));
  CHECK(worker.counters().sent < 100);
  CHECK(worker.counters().sent + worker.counters().queue_full == 100);
}

TEST_CASE(
    "a peer that is away holds a bounded number of messages, and none once it is hung up on") {
  const ScratchFolder folder;
  ZmqContext context;
  const PeerId lane_peer = NewPeer(1);
  const PeerId worker_peer = NewPeer(2);
  Transport worker(context, worker_peer, {.linger_ms = 0});
  REQUIRE(worker.Dial(lane_peer, folder.Ipc("gone")).ok());
  auto buffer = std::make_shared<FloatBuffer>(kInlinePayloadBytes / sizeof(float));
  const std::weak_ptr<FloatBuffer> held = buffer;
  Envelope envelope = MakePush(worker_peer, lane_peer, ToBlob(std::move(buffer)));
  for (int i = 0; i < 2 * kQueuedPerPeerMax; ++i) worker.Send(envelope);
  CHECK(worker.counters().sent <= kQueuedPerPeerMax);
  envelope.message = Bye{};
  CHECK(!held.expired());
  worker.HangUp(lane_peer);
  MustBecome(worker, [&] { return held.expired(); });
}

TEST_CASE("a peer that does not read has a full queue, it is not away") {
  Pair pair(kAnyTcpPort);
  pair.CheckTraffic("hello");
  // More than the queues of both ends (1000 messages each) and TCP's buffers hold.
  constexpr uint64_t kSends = 6000;
  const std::string text(16 << 10, 'x');
  for (uint64_t i = 0; i < kSends; ++i) {
    pair.lane.Send(TextFrom(pair.lane_peer, pair.worker_peer, text));
  }
  const Transport::Counters& counters = pair.lane.counters();
  CHECK(counters.queue_full > 0);
  CHECK(counters.unroutable == 0);
  CHECK(counters.sent + counters.queue_full == kSends + 1);
}

}  // namespace
}  // namespace pando
