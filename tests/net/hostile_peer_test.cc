// Peers that do not speak our protocol do not disturb those that do.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <zmq.h>

#include <cerrno>
#include <cstring>
#include <random>

#include "net/address.h"
#include "tests/net/net_fixture.h"

namespace pando {
namespace {

using Bytes = std::vector<char>;

Bytes RandomBytes(std::mt19937_64& random, size_t size) {
  Bytes bytes(size);
  for (char& b : bytes) b = static_cast<char>(random());
  return bytes;
}

// A connected TCP socket.
class RawTcp {
 public:
  explicit RawTcp(const std::string& endpoint) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    const Result<Endpoint> parsed = ParseEndpoint(endpoint);
    REQUIRE(parsed.ok());
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(parsed->port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience{std::chrono::duration_cast<std::chrono::seconds>(kTestDeadline).count(),
                           0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    REQUIRE(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  }
  ~RawTcp() { close(fd_); }
  RawTcp(const RawTcp&) = delete;
  RawTcp& operator=(const RawTcp&) = delete;
  // The peer may have hung up by now, and that is fine.
  void Send(const Bytes& bytes) const {
    (void)!send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Reads until this text has come.
  void ReadUntil(const std::string& text) const {
    std::string all;
    char byte = 0;
    while (all.find(text) == std::string::npos) {
      REQUIRE(recv(fd_, &byte, 1, 0) == 1);
      all += byte;
    }
  }
  // Reads until the peer hangs up; false if it has not by the deadline.
  bool IsCutOff() const {
    char ignored[256];
    ssize_t size = 1;
    while (size > 0) size = recv(fd_, ignored, sizeof(ignored), 0);
    return size == 0 || errno == ECONNRESET;
  }

 private:
  int fd_;
};

// A ZeroMQ peer with a routing id of its choice, or the one its library makes up.
class RawDealer {
 public:
  RawDealer(const ZmqContext& context, const std::string& endpoint,
            const std::string& routing_id = "")
      : socket_(zmq_socket(context.handle(), ZMQ_DEALER)) {
    if (!routing_id.empty()) {
      zmq_setsockopt(socket_, ZMQ_ROUTING_ID, routing_id.data(), routing_id.size());
    }
    REQUIRE(zmq_connect(socket_, endpoint.c_str()) == 0);
  }
  ~RawDealer() {
    const int linger = 0;
    zmq_setsockopt(socket_, ZMQ_LINGER, &linger, sizeof(linger));
    zmq_close(socket_);
  }
  RawDealer(const RawDealer&) = delete;
  RawDealer& operator=(const RawDealer&) = delete;
  void Send(const std::vector<Bytes>& frames) const {
    for (size_t i = 0; i < frames.size(); ++i) {
      const int more = i + 1 < frames.size() ? ZMQ_SNDMORE : 0;
      REQUIRE(zmq_send(socket_, frames[i].data(), frames[i].size(), more) >= 0);
    }
  }

 private:
  void* socket_;
};

std::vector<Bytes> FramesOf(const Envelope& envelope) {
  std::vector<Bytes> frames;
  for (const Blob& frame : Encode(envelope)) {
    const auto* bytes = reinterpret_cast<const char*>(frame.bytes().data());
    frames.emplace_back(bytes, bytes + frame.size_bytes());
  }
  return frames;
}

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
  // ZMTP 3.0: greeting with mechanism NULL, READY as a DEALER, a short frame, then a long one of
  // one byte more than is allowed.
  Bytes greeting(64, 0);
  greeting[0] = '\xff';
  greeting[8] = 1;
  greeting[9] = '\x7f';
  greeting[10] = 3;
  std::memcpy(&greeting[12], "NULL", 4);
  stranger.Send(greeting);
  const char ready[] =
      "\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06"
      "DEALER";
  stranger.Send(Bytes(ready, ready + sizeof(ready) - 1));
  stranger.ReadUntil("ROUTER");  // traffic before the peer's READY would be an error of its own
  stranger.Send({'\x00', '\x03', 'a', 'b', 'c'});
  MustBecome(pair.lane, [&] { return pair.lane.counters().undecodable == 1; });
  static_assert(kFrameBytesMax == 0x04000000);
  stranger.Send({2, 0, 0, 0, 0, 4, 0, 0, 1});
  CHECK(stranger.IsCutOff());
  pair.CheckTraffic("as before");
}

TEST_CASE("random frames of a ZeroMQ peer are dropped, and warned about once") {
  std::vector<std::string> warnings;
  Pair pair(kAnyTcpPort,
            {.on_warning = [&](const std::string& text) { warnings.push_back(text); }});
  const RawDealer stranger(pair.context, pair.bound);
  std::mt19937_64 random(2);
  constexpr uint64_t kMessageCount = 500;
  for (uint64_t i = 0; i < kMessageCount; ++i) {
    std::vector<Bytes> frames(1 + random() % 5);
    for (Bytes& frame : frames) frame = RandomBytes(random, random() % 300);
    stranger.Send(frames);
  }
  pair.CheckTraffic("meanwhile");
  MustBecome(pair.lane, [&] { return pair.lane.counters().undecodable == kMessageCount; });
  pair.CheckTraffic("afterwards");
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("dropped a message of ") == 0);
}

TEST_CASE("a valid message under a foreign routing id is dropped") {
  Pair pair(kAnyTcpPort);
  const auto frames = FramesOf(TextFrom(pair.worker_peer, pair.lane_peer, "replayed"));
  const RawDealer nameless(pair.context, pair.bound);
  const RawDealer named(pair.context, pair.bound, "somebody else");
  nameless.Send(frames);
  named.Send(frames);
  MustBecome(pair.lane, [&] { return pair.lane.counters().misattributed == 2; });
  pair.CheckTraffic("undisturbed");
}

TEST_CASE("mutated valid messages are dropped or heard as who sent them") {
  Pair pair(kAnyTcpPort);
  const RawDealer stranger(pair.context, pair.bound);
  const auto valid = FramesOf(TextFrom(pair.worker_peer, pair.lane_peer, "mutated"));
  std::mt19937_64 random(3);
  constexpr uint64_t kMessageCount = 1000;
  for (uint64_t i = 0; i < kMessageCount; ++i) {
    auto frames = valid;
    Bytes& frame = frames[random() % frames.size()];
    frame[random() % frame.size()] ^= static_cast<char>(1 << random() % 8);
    stranger.Send(frames);
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
  void* router = zmq_socket(context.handle(), ZMQ_ROUTER);
  REQUIRE(zmq_bind(router, "tcp://127.0.0.1:*") == 0);
  char endpoint[256];
  size_t size = sizeof(endpoint);
  REQUIRE(zmq_getsockopt(router, ZMQ_LAST_ENDPOINT, endpoint, &size) == 0);
  const PeerId worker_peer = NewPeer(2);
  const PeerId lane_peer = NewPeer(1);
  Transport worker(context, worker_peer, {.linger_ms = 0});
  REQUIRE(worker.Dial(lane_peer, endpoint).ok());
  worker.Send(TextFrom(worker_peer, lane_peer, "hello"));
  char routing_id[256];
  const int id_size = zmq_recv(router, routing_id, sizeof(routing_id), 0);
  REQUIRE(id_size > 0);
  zmq_send(router, routing_id, static_cast<size_t>(id_size), ZMQ_SNDMORE);
  zmq_send(router, "nonsense", 8, 0);
  MustBecome(worker, [&] { return worker.counters().undecodable == 1; });
  const int linger = 0;
  zmq_setsockopt(router, ZMQ_LINGER, &linger, sizeof(linger));
  zmq_close(router);
}

}  // namespace
}  // namespace pando
