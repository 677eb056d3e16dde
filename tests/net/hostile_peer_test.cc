// Peers that do not speak our protocol do not disturb those that do.
#include <sys/resource.h>

#include <random>

#include "tests/net/net_fixture.h"
#include "tests/net/raw_peers.h"

namespace pando {
namespace {

TEST_CASE("random bytes on the raw port do not disturb traffic") {
  Pair pair(kAnyTcpPort);
  pair.CheckTraffic("before");
  std::mt19937_64 random(1);
  for (int i = 0; i < 50; ++i) {
    const RawTcp stranger(pair.bound);
    stranger.Send(RandomBytes(random, 1 + random() % 4096));
    pair.CheckTraffic("during " + std::to_string(i));
  }
  pair.CheckTraffic("after");
}

TEST_CASE("a ZeroMQ peer that greets properly and announces too large a frame is cut off") {
  Pair pair(kAnyTcpPort);
  const RawTcp stranger(pair.bound);
  stranger.BeDealer();
  stranger.Send({'\x00', '\x03', 'a', 'b', 'c'});
  MustBecome(pair.lane, [&] { return pair.lane.counters().undecodable == 1; });
  static_assert(kFrameBytesMax == 0x04000000);
  stranger.Send({2, 0, 0, 0, 0, 4, 0, 0, 0x41});  // and what CURVE adds
  CHECK(stranger.IsCutOff());
  pair.CheckTraffic("as before");
}

// ZeroMQ holds back the input of a peer whose messages no thread takes. Its pings' timer once ended
// the process when such a connection ended.
TEST_CASE("a connection that ends while its input is held back ends nothing else") {
  Pair pair(kAnyTcpPort);
  {
    const RawTcp stranger(pair.bound);
    stranger.BeDealer();
    RawFrame flood;
    for (int i = 0; i < 3 * kQueuedPerPeerMax; ++i) flood.insert(flood.end(), {0, 1, 'x'});
    stranger.Send(flood);
  }
  const Micros until = SteadyNow() + std::chrono::milliseconds(1500);  // a ping each second
  do {
    pair.worker.Wait(SteadyNow() + std::chrono::milliseconds(50));
  } while (SteadyNow() < until);
  MustBecome(pair.lane, [&] { return pair.lane.counters().undecodable > 0; });
  pair.CheckTraffic("as before");
}

TEST_CASE("what waits for a peer that does not read is bounded in bytes") {
  constexpr int64_t kBytesMax = 1 << 20;
  Pair pair(kAnyTcpPort, {.queued_bytes_max = kBytesMax});
  pair.CheckTraffic("hello");
  const std::string text(16 << 10, 'x');
  // However slowly they are sent: the receiver's queue takes a third, and TCP's buffers some.
  constexpr uint64_t kSends = 3 * kQueuedPerPeerMax;
  for (uint64_t i = 0; i < kSends; ++i)
    pair.lane.Send(TextFrom(pair.lane_peer, pair.worker_peer, text));
  CHECK(pair.lane.counters().queue_full > kSends / 4);
  const uint64_t sent = pair.lane.counters().sent;
  for (uint64_t i = 1; i < sent; ++i) MustReceive(pair.worker);
  pair.CheckTraffic("once it has read, it gets messages again");
}

TEST_CASE("peers for which no descriptor is left are turned away, and served once there are some") {
  std::vector<std::string> warnings;
  Pair pair(kAnyTcpPort,
            {.on_warning = [&](const std::string& text) { warnings.push_back(text); }});
  pair.CheckTraffic("before");
  constexpr size_t kLate = 40;
  // HandshakeWatch may close its copies of the pair's connections after the late ones are opened.
  // A late connection with such a low descriptor is served.
  constexpr size_t kCopiesMax = 2;
  std::vector<UniqueFd> late;
  for (size_t i = 0; i < kLate; ++i)
    late.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  REQUIRE(late.back().is_open());
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit few{.rlim_cur = static_cast<rlim_t>(late.back().get() + 4),
                   .rlim_max = before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  const sockaddr_in address = LoopbackAddress(pair.bound);
  for (const UniqueFd& fd : late)
    (void)!connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  MustBecome(pair.lane, [&] { return pair.lane.counters().turned_away >= kLate - kCopiesMax; });
  CHECK(warnings.size() == 1);
  pair.CheckTraffic("a connection that was there stays");
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  const PeerId newcomer_peer = NewPeer(9);
  Transport newcomer(pair.context, newcomer_peer, {});
  REQUIRE(newcomer.Dial(pair.lane_peer, pair.bound).ok());
  newcomer.Send(TextFrom(newcomer_peer, pair.lane_peer, "accepted"));
  CHECK(Text(MustReceive(pair.lane)) == "accepted");
}

TEST_CASE("random frames of a ZeroMQ peer are dropped, and warned about once") {
  std::vector<std::string> warnings;
  Pair pair(kAnyTcpPort,
            {.on_warning = [&](const std::string& text) { warnings.push_back(text); }});
  const RawDealer stranger(pair.context, pair.bound, {});
  std::mt19937_64 random(2);
  constexpr uint64_t kMessageCount = 500;
  for (uint64_t i = 0; i < kMessageCount; ++i) {
    RawMessage frames(1 + random() % 5);
    for (RawFrame& frame : frames) frame = RandomBytes(random, random() % 300);
    CHECK(stranger.Send(frames));
  }
  pair.CheckTraffic("meanwhile");
  MustBecome(pair.lane, [&] { return pair.lane.counters().undecodable == kMessageCount; });
  pair.CheckTraffic("afterwards");
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("dropped a message of ") == 0);
}

TEST_CASE("a valid message under a foreign routing id is dropped") {
  Pair pair(kAnyTcpPort);
  const auto frames = ToRaw(TextFrom(pair.worker_peer, pair.lane_peer, "replayed"));
  const RawDealer nameless(pair.context, pair.bound, {});
  const RawDealer named(pair.context, pair.bound, {.routing_id = "another peer."});
  CHECK(nameless.Send(frames));
  CHECK(named.Send(frames));
  MustBecome(pair.lane, [&] { return pair.lane.counters().misattributed == 2; });
  pair.CheckTraffic("undisturbed");
}

TEST_CASE("mutated valid messages are dropped or attributed to their sender") {
  Pair pair(kAnyTcpPort);
  const RawDealer stranger(pair.context, pair.bound, {});
  const auto valid = ToRaw(TextFrom(pair.worker_peer, pair.lane_peer, "mutated"));
  std::mt19937_64 random(3);
  constexpr uint64_t kMessageCount = 1000;
  for (uint64_t i = 0; i < kMessageCount; ++i) {
    auto frames = valid;
    RawFrame& frame = frames[random() % frames.size()];
    frame[random() % frame.size()] ^= static_cast<char>(1 << random() % 8);
    CHECK(stranger.Send(frames));
  }
  MustBecome(pair.lane, [&] {
    const Transport::Counters& counters = pair.lane.counters();
    return counters.undecodable + counters.misattributed == kMessageCount;
  });
  CHECK(pair.lane.counters().received == 0);
  pair.CheckTraffic("undisturbed");
}

TEST_CASE("a stranger that binds where a peer was expected is not heard") {
  ZmqContext context;
  zmq::socket_t router(context.zmq_context(), zmq::socket_type::router);
  router.set(zmq::sockopt::linger, 0);
  router.bind("tcp://127.0.0.1:*");
  const PeerId worker_peer = NewPeer(2);
  const PeerId lane_peer = NewPeer(1);
  Transport worker(context, worker_peer, {.linger_ms = 0});
  REQUIRE(worker.Dial(lane_peer, router.get(zmq::sockopt::last_endpoint)).ok());
  worker.Send(TextFrom(worker_peer, lane_peer, "hello"));
  zmq::message_t routing_id;
  REQUIRE(router.recv(routing_id).has_value());
  router.send(routing_id, zmq::send_flags::sndmore);
  router.send(zmq::str_buffer("nonsense"), zmq::send_flags::none);
  MustBecome(worker, [&] { return worker.counters().undecodable == 1; });
}

}  // namespace
}  // namespace pando
