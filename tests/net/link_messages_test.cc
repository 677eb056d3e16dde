// Messages that go by the link of parties that share memory, past ZeroMQ, and links that lie.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>
#include <string>

#include "tests/net/shared_fixture.h"

namespace pando {
namespace {

TEST_CASE("once memory is shared all but long messages use the link, in order") {
  SharingPair pair;
  pair.MustLink();
  const uint64_t before = pair.worker.counters().sent_by_link;
  for (int i = 0; i < 100; ++i)
    pair.worker.Send(TextFrom(pair.worker_peer, pair.lane_peer, std::to_string(i)));
  CHECK(pair.worker.counters().sent_by_link == before + 100);
  for (int i = 0; i < 100; ++i) CHECK(Text(MustReceive(pair.lane)) == std::to_string(i));
  pair.lane.Send(TextFrom(pair.lane_peer, pair.worker_peer, "back"));
  CHECK(Text(MustReceive(pair.worker)) == "back");
  CHECK(pair.lane.counters().sent_by_link > 0);

  auto heap = std::make_shared<FloatBuffer>(kFloats);  // a payload that cannot be named
  Fill(*heap, 8);
  pair.worker.Send(MakePush(pair.worker_peer, pair.lane_peer, ToBlob(heap)));
  CHECK(pair.worker.counters().sent_by_link == before + 100);
  CheckRamp(Payload(MustReceive(pair.lane)), 8);
}

TEST_CASE("what finds no room in a link goes by ZeroMQ, and nothing is lost") {
  SharingPair pair;
  pair.MustLink();
  constexpr size_t kCount = 200;
  const std::string text(60'000, 'x');
  const uint64_t before = pair.worker.counters().sent_by_link;
  for (size_t i = 0; i < kCount; ++i)
    pair.worker.Send(TextFrom(pair.worker_peer, pair.lane_peer, text + std::to_string(i)));
  const uint64_t by_link = pair.worker.counters().sent_by_link - before;
  CHECK(by_link > 0);
  CHECK(by_link < kCount);
  std::set<std::string> received;
  for (size_t i = 0; i < kCount; ++i) received.insert(Text(MustReceive(pair.lane)));
  CHECK(received.size() == kCount);
}

// Another worker of the pair's lane, linked with it.
std::unique_ptr<Transport> MustJoin(SharingPair& pair, const PeerId& peer) {
  auto joiner = std::make_unique<Transport>(pair.context, peer, Transport::Options{});
  REQUIRE(joiner->ShareMemory({.pool = MustCreatePool()}).ok());
  REQUIRE(joiner->Dial(pair.lane_peer, *pair.bound).ok());
  const Micros deadline = SteadyNow() + kEventDeadline;
  while (joiner->CountLines().shm == 0) {
    REQUIRE(SteadyNow() < deadline);
    pair.lane.Wait(SteadyNow() + std::chrono::milliseconds(1));
    joiner->Wait(SteadyNow() + std::chrono::milliseconds(1));
  }
  return joiner;
}

TEST_CASE("peers' links take turns") {
  SharingPair pair;
  pair.MustLink();
  const PeerId other_peer = NewPeer(5);
  const std::unique_ptr<Transport> other = MustJoin(pair, other_peer);
  for (int i = 0; i < 5; ++i) {
    pair.worker.Send(TextFrom(pair.worker_peer, pair.lane_peer, "one"));
    other->Send(TextFrom(other_peer, pair.lane_peer, "other"));
  }
  std::string last;
  for (int i = 0; i < 10; ++i) {
    const std::string text = Text(MustReceive(pair.lane));
    CHECK(text != last);
    last = text;
  }
}

TEST_CASE("a peer's last messages arrive after its end, even if it had not read ours") {
  SharingPair pair;
  const PeerId peer = NewPeer(5);
  for (const bool has_read_all : {true, false}) {
    std::unique_ptr<Transport> other = MustJoin(pair, peer);
    for (int i = 0; i < 3; ++i) other->Send(TextFrom(peer, pair.lane_peer, std::to_string(i)));
    CHECK(other->counters().sent_by_link == 3);
    if (!has_read_all) pair.lane.Send(TextFrom(pair.lane_peer, peer, "too late"));
    other.reset();
    for (int i = 0; i < 3; ++i) CHECK(Text(MustReceive(pair.lane)) == std::to_string(i));
  }
}

TEST_CASE("a segment that a full link could not confirm is confirmed later, and then named") {
  SharingPair pair({.segment_bytes = 2 << 20});  // of one buffer each
  pair.MustLink();
  const std::string text(60'000, 'x');
  int sent_count = 0;
  for (uint64_t before = 0; before < pair.lane.counters().sent_by_link; ++sent_count) {
    before = pair.lane.counters().sent_by_link;
    pair.lane.Send(TextFrom(pair.lane_peer, pair.worker_peer, text));
  }
  const SharedBuffer first = pair.worker_buffers.Take();
  const SharedBuffer second = pair.worker_buffers.Take();
  Fill(*second, 1);
  CheckRamp(Payload(pair.Pushed(second)), 1);  // as bytes
  CHECK(pair.worker_pool->segment_count() == 2);
  for (int i = 0; i < sent_count; ++i) CHECK(Text(MustReceive(pair.worker)) == text);
  pair.lane.Send(TextFrom(pair.lane_peer, pair.worker_peer, "go on"));
  CHECK(Text(MustReceive(pair.worker)) == "go on");
  const Micros deadline = SteadyNow() + kEventDeadline;
  while (!pair.Names(pair.worker, pair.worker_peer, pair.lane, pair.lane_peer, 1, second)) {
    REQUIRE(SteadyNow() < deadline);
    pair.ReadLinks();
  }
}

TEST_CASE("an isolated process neither sends nor receives by a link") {
  SharingPair pair;
  pair.MustLink();
  pair.context.IsolateUntil(kNever);
  const uint64_t isolated = pair.worker.counters().isolated;
  pair.worker.Send(TextFrom(pair.worker_peer, pair.lane_peer, "not sent"));
  CHECK(pair.worker.counters().isolated == isolated + 1);
  pair.context.IsolateUntil(SteadyNow());
  pair.worker.Send(TextFrom(pair.worker_peer, pair.lane_peer, "not heard"));
  pair.lane.Wait(SteadyNow() + kEventDeadline);
  pair.context.IsolateUntil(kNever);
  Envelope envelope;
  CHECK_FALSE(pair.lane.Receive(&envelope));
  CHECK(pair.lane.counters().isolated == 1);
  pair.context.IsolateUntil(SteadyNow());
  pair.worker.Send(TextFrom(pair.worker_peer, pair.lane_peer, "heard"));
  CHECK(Text(MustReceive(pair.lane)) == "heard");
}

// ---- strangers and liars ------------------------------------------------------------------------

int ConnectTo(const PeerId& peer) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  char name[64];
  const int size = std::snprintf(name, sizeof(name), "pando/%016lx/%u",
                                 static_cast<unsigned long>(peer.incarnation.value()), peer.lane);
  std::memcpy(address.sun_path + 1, name, static_cast<size_t>(size));
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
  REQUIRE(connect(fd, reinterpret_cast<sockaddr*>(&address), length) == 0);
  return fd;
}

TEST_CASE("a stranger that sends garbage to the Unix socket disturbs no peer") {
  SharingPair pair;
  const int stranger = ConnectTo(pair.lane_peer);
  REQUIRE(send(stranger, "garbage", 7, 0) == 7);
  pair.MustLink();
  CHECK(pair.Names(pair.worker, pair.worker_peer, pair.lane, pair.lane_peer, 3));
  char byte;
  CHECK(recv(stranger, &byte, 1, 0) == 0);  // the lane reads nothing of it
  close(stranger);
}

// What SharedLink sends as its hello.
std::string MakeHello(const PeerId& peer) {
  const struct {
    uint32_t magic = 0x6d68'7350, kind = 1;
    uint64_t incarnation, lane, layout_version = 2;
  } hello{.incarnation = peer.incarnation.value(), .lane = peer.lane};
  return {reinterpret_cast<const char*>(&hello), sizeof(hello)};
}

TEST_CASE("a peer with false packets is disconnected and disturbs no other peer") {
  SharingPair pair;
  pair.MustLink();
  std::string lying_sizes = "Pmsg";
  for (const uint32_t number : {2u, 8u, 4096u})
    lying_sizes.append(reinterpret_cast<const char*>(&number), sizeof(number));
  for (const std::string& packet :
       {lying_sizes, std::string("Pmsg\xff\xff\xff\xff"), std::string(200'000, 'x')}) {
    const PeerId liar_peer = NewPeer(7);
    const int liar = ConnectTo(pair.lane_peer);
    for (const std::string& said : {MakeHello(liar_peer), packet})
      REQUIRE(send(liar, said.data(), said.size(), 0) == static_cast<ssize_t>(said.size()));
    char bytes[64];
    ssize_t size = 1;
    const Micros deadline = SteadyNow() + kEventDeadline;
    while (size != 0) {  // until the lane has hung up: before, it tells of its segments
      REQUIRE(SteadyNow() < deadline);
      pair.lane.Wait(SteadyNow() + std::chrono::milliseconds(1));
      size = recv(liar, bytes, sizeof(bytes), MSG_DONTWAIT);
    }
    close(liar);
    CHECK(pair.Names(pair.worker, pair.worker_peer, pair.lane, pair.lane_peer, 3));
  }
}

TEST_CASE("a false sender's packet is dropped") {
  SharingPair pair;
  pair.MustLink();
  pair.worker.Send(TextFrom(NewPeer(9), pair.lane_peer, "not I"));
  pair.worker.Send(TextFrom(pair.worker_peer, pair.lane_peer, "I"));
  CHECK(Text(MustReceive(pair.lane)) == "I");
  CHECK(pair.lane.counters().misattributed == 1);
}

}  // namespace
}  // namespace pando
