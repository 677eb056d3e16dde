// Strangers whose handshake is not finished: they take no memory and disturb none (P44).
#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "common/float_buffer.h"
#include "tests/net/net_fixture.h"
#include "tests/net/raw_curve.h"

namespace pando {
namespace {

enum class Mechanism : uint8_t { kNull, kPlain, kCurve };
constexpr auto kMechanisms = {Mechanism::kNull, Mechanism::kPlain, Mechanism::kCurve};

std::string NameFor(Mechanism mechanism) {
  if (mechanism == Mechanism::kNull) return "NULL";
  return mechanism == Mechanism::kPlain ? "PLAIN" : "CURVE";
}

// A process with its transport.
struct Party {
  Party(Mechanism mechanism, const Keys& keys, uint32_t node)
      : context(mechanism == Mechanism::kNull ? Keys() : keys),
        self(NewPeer(node)),
        transport(context, self,
                  {.on_warning = [this](const std::string& text) { warnings.push_back(text); }}) {
    if (mechanism == Mechanism::kPlain) REQUIRE(transport.SpeakInClear().ok());
  }
  std::vector<std::string> warnings;
  ZmqContext context;
  PeerId self;
  Transport transport;
};

// A lane, and a worker that is connected to it.
struct KeyedPair {
  explicit KeyedPair(Mechanism mechanism)
      : kind(mechanism), lane(mechanism, keys, 1), worker(mechanism, keys, 2) {
    const Result<std::string> address = lane.transport.Bind(kAnyTcpPort);
    REQUIRE_MESSAGE(address.ok(), address.status().message());
    bound = *address;
    Join(worker);
    CheckTraffic("before");
  }
  void Join(Party& party) {
    REQUIRE(party.transport.Dial(lane.self, bound, lane.transport.guard().public_key()).ok());
  }
  void CheckTraffic(const std::string& text) { CheckTraffic(worker, text); }
  void CheckTraffic(Party& party, const std::string& text) {
    party.transport.Send(TextFrom(party.self, lane.self, text));
    CHECK(Text(MustReceive(lane.transport)) == text);
    lane.transport.Send(TextFrom(lane.self, party.self, text + " back"));
    CHECK(Text(MustReceive(party.transport)) == text + " back");
  }
  uint64_t turned_away() const { return lane.transport.counters().turned_away; }

  const Mechanism kind;
  const Keys keys = DrawKeys();
  Party lane;
  Party worker;
  std::string bound;
};

// Sends until the peer hangs up. What fits into the kernel's buffers may be sent before the peer
// looks, so it then waits for the end; false if there is none.
bool IsCutOffWhileSending(const RawTcp& stranger, const RawFrame& begin) {
  stranger.Send(begin);
  const RawFrame part(1 << 20, 'x');
  for (int i = 0; i < 61; ++i)
    if (!stranger.TrySend(part)) return true;
  char byte = 0;
  ssize_t count = 1;
  while (count > 0) count = recv(stranger.fd(), &byte, 1, 0);
  return count == 0 || errno != EAGAIN;
}

TEST_CASE("a stranger that sends long frames before its handshake is over is cut off") {
  for (const Mechanism mechanism : kMechanisms) {
    CAPTURE(NameFor(mechanism));
    KeyedPair pair(mechanism);
    std::vector<RawFrame> begins;
    for (const char flags : {'\6', '\2', '\3'}) {  // a command, a message, one of several frames
      RawFrame begin = Greeting(NameFor(mechanism));
      if (flags == '\6' && mechanism == Mechanism::kCurve) {
        // As far as it gets without a key: the lane's public key is no secret.
        const RawFrame hello = CurveHello(RawKey(pair.lane.transport.guard().public_key()));
        begin.insert(begin.end(), hello.begin(), hello.end());
      }
      const RawFrame frame = LongFrame(flags);
      begin.insert(begin.end(), frame.begin(), frame.end());
      begins.push_back(begin);
    }
    for (int i = 0; i < 8; ++i) {
      for (const RawFrame& begin : begins) CHECK(IsCutOffWhileSending(RawTcp(pair.bound), begin));
      pair.CheckTraffic("during " + std::to_string(i));
    }
    MustBecome(pair.lane.transport, [&] { return pair.turned_away() == 8 * begins.size(); });
    CHECK(pair.lane.warnings.size() == 1);
    Party newcomer(mechanism, pair.keys, 3);
    pair.Join(newcomer);
    pair.CheckTraffic(newcomer, "a newcomer");
    CHECK(pair.turned_away() == 8 * begins.size());
  }
}

TEST_CASE("of many connections without a handshake the newest stay") {
  constexpr size_t kIdle = 200;
  constexpr size_t kKept = 64;
  for (const Mechanism mechanism : kMechanisms) {
    CAPTURE(NameFor(mechanism));
    KeyedPair pair(mechanism);
    std::vector<std::unique_ptr<RawTcp>> idle;
    for (size_t i = 0; i < kIdle; ++i) {
      idle.push_back(std::make_unique<RawTcp>(pair.bound));
      if (i % 2 == 0) idle.back()->Send(Greeting(NameFor(mechanism)));
    }
    MustBecome(pair.lane.transport, [&] { return pair.turned_away() == kIdle - kKept; });
    for (size_t i = 0; i < kIdle - kKept; ++i) CHECK(idle[i]->IsCutOff());
    pair.CheckTraffic("the one that was there");
    Party newcomer(mechanism, pair.keys, 3);
    pair.Join(newcomer);
    pair.CheckTraffic(newcomer, "a newcomer");
  }
}

// Its bytes come long before the lane's thread looks.
TEST_CASE("a peer whose first message is long is not cut off") {
  constexpr size_t kBytes = 48 << 20;
  for (const Mechanism mechanism : kMechanisms) {
    CAPTURE(NameFor(mechanism));
    KeyedPair pair(mechanism);
    const Blob payload = ToBlob(std::make_shared<FloatBuffer>(kBytes / sizeof(float)));
    constexpr uint32_t kNewcomers = 4;
    std::vector<std::unique_ptr<Party>> newcomers;
    for (uint32_t i = 0; i < kNewcomers; ++i) {
      Party& newcomer = *newcomers.emplace_back(std::make_unique<Party>(mechanism, pair.keys, 3));
      pair.Join(newcomer);
      newcomer.transport.Send(MakePush(newcomer.self, pair.lane.self, payload));
    }
    for (uint32_t i = 0; i < kNewcomers; ++i)
      CHECK(Payload(MustReceive(pair.lane.transport)).size_bytes() == kBytes);
    CHECK(pair.turned_away() == 0);
    CHECK(pair.lane.warnings.empty());
  }
}

// ---- false servers ------------------------------------------------------------------------------

// A server by hand, and a worker that dials it and an honest lane.
struct FalseServer {
  FalseServer() : listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = LoopbackAddress(kAnyTcpPort);
    socklen_t size = sizeof(address);
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(bind(listener.get(), name, size) == 0);
    REQUIRE(listen(listener.get(), 16) == 0);
    REQUIRE(getsockname(listener.get(), name, &size) == 0);
    endpoint = "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  // The next connection, and its short-term key from HELLO. ZeroMQ does not dial again
  // where a handshake was false.
  RawTcp Accept(CurveKey* client) {
    Transport& dialer = pair.worker.transport;
    dialer.HangUp(self);
    REQUIRE(dialer.Dial(self, endpoint, shown.public_key).ok());
    dialer.Send(TextFrom(pair.worker.self, self, "a secret"));
    RawTcp connection = RawTcp::Accept(listener.get());
    connection.Send(Greeting("CURVE"));
    const std::string hello = connection.Read(64 + 2 + 200).substr(64 + 2);
    std::copy_n(hello.begin() + 80, client->size(), client->begin());
    return connection;
  }

  KeyedPair pair{Mechanism::kCurve};
  const PeerId self = NewPeer(7);
  std::string endpoint;
  const UniqueFd listener;
  const KeyPair shown = DrawKeyPair();
  const CurveKey secret = RawKey(shown.secret_key);
};

TEST_CASE("a server whose short-term key is of low order ends no process that dials it") {
  // libsodium's list, by their first and last bytes: 0, 1, p - 1, p, p + 1, and two of order 8.
  CurveKey zero{}, one{1}, minus_one, p, p_plus_one, eight, other_eight;
  minus_one.fill(0xff);
  minus_one.front() = 0xec;
  minus_one.back() = 0x7f;
  p = p_plus_one = minus_one;
  p.front() = 0xed;
  p_plus_one.front() = 0xee;
  const char* const kEight = "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800";
  const char* const kOther = "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157";
  sodium_hex2bin(eight.data(), 32, kEight, 64, nullptr, nullptr, nullptr);
  sodium_hex2bin(other_eight.data(), 32, kOther, 64, nullptr, nullptr, nullptr);
  FalseServer server;
  for (CurveKey key : {zero, one, minus_one, p, p_plus_one, eight, other_eight}) {
    for (const bool has_top_bit : {false, true}) {  // it does not count
      if (has_top_bit) key.back() = static_cast<uint8_t>(key.back() | 0x80);
      CurveKey client;
      const RawTcp connection = server.Accept(&client);
      connection.Send(CurveWelcome(server.secret, client, key));
      CHECK(connection.IsCutOff());
    }
  }
  KeyedPair& pair = server.pair;
  MustBecome(pair.worker.transport, [&] { return !pair.worker.warnings.empty(); });
  pair.CheckTraffic("honest");
  CHECK(pair.worker.warnings.size() == 1);
}

TEST_CASE("a server that has no key is not believed") {
  FalseServer server;
  CurveKey client, short_public, short_secret;
  crypto_box_keypair(short_public.data(), short_secret.data());
  for (int i = 0; i < 20; ++i) {
    // Its own key's connection leaves a key that it knows in the dialer's memory.
    RawTcp known = server.Accept(&client);
    known.Send(CurveWelcome(server.secret, client, short_public));
    known.Read(2 + 8);  // INITIATE
    const CurveKey left = ConnectionKey(client, short_secret);
    { RawTcp closed = std::move(known); }
    for (const CurveKey& key : {left, CurveKey{}}) {
      const RawTcp connection = server.Accept(&client);
      connection.Send(CurveReady(key));
      CHECK(connection.IsCutOff());
    }
  }
  server.pair.CheckTraffic("honest");
  // The server that has the key gets the message.
  const RawTcp connection = server.Accept(&client);
  connection.Send(CurveWelcome(server.secret, client, short_public));
  connection.ReadUntil("INITIATE");
  connection.Send(CurveReady(ConnectionKey(client, short_secret)));
  connection.ReadUntil("MESSAGE");
}

}  // namespace
}  // namespace pando
