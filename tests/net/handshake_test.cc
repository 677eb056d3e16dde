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

// Sends until the peer hangs up; false if it has taken all.
bool IsCutOffWhileSending(const RawTcp& stranger, const RawFrame& begin) {
  stranger.Send(begin);
  const RawFrame part(1 << 20, 'x');
  for (int i = 0; i < 61; ++i)
    if (!stranger.TrySend(part)) return true;
  return false;
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

}  // namespace
}  // namespace pando
