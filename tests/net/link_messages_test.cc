// Messages that go by the link of parties that share memory, past ZeroMQ, and links that lie.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

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

// The packet that SharedLink sends before any segment.
struct RawControl {
  uint32_t magic = 0x6d68'7350, kind = 1;
  uint64_t incarnation = 0, lane = 0, layout_version = 3;
  char number[16] = {}, token[16] = {};
};
std::string AsPacket(const RawControl& control) {
  return {reinterpret_cast<const char*>(&control), sizeof(control)};
}
std::string MakeHello(const PeerId& peer) {
  return AsPacket({.incarnation = peer.incarnation.value(), .lane = peer.lane});
}
std::string MakeProof(const std::string& token) {
  RawControl proof{.kind = 5};
  token.copy(proof.token, sizeof(proof.token));
  return AsPacket(proof);
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
    for (const std::string& said : {MakeHello(liar_peer), MakeProof(""), packet})
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

// ---- keys ---------------------------------------------------------------------------------------

// Reads until the peer hangs up, meanwhile its transport goes on. No packet has a descriptor.
std::vector<std::string> ReadAll(int fd, Transport& transport) {
  std::vector<std::string> packets;
  const Micros deadline = SteadyNow() + kEventDeadline;
  while (true) {
    REQUIRE(SteadyNow() < deadline);
    transport.Wait(SteadyNow() + std::chrono::milliseconds(1));
    char bytes[256], space[256];
    iovec part{bytes, sizeof(bytes)};
    msghdr message{
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
    const ssize_t size = recvmsg(fd, &message, MSG_DONTWAIT);
    if (size < 0 && errno == EAGAIN) continue;
    if (size <= 0) return packets;
    CHECK(message.msg_controllen == 0);
    packets.emplace_back(bytes, static_cast<size_t>(size));
  }
}

void Say(int fd, const std::string& packet) {
  REQUIRE(send(fd, packet.data(), packet.size(), 0) == static_cast<ssize_t>(packet.size()));
}

TEST_CASE("with keys memory is shared once both ends know and have proved each other's") {
  SharingPair pair({}, DrawKeys());
  for (int i = 0; i < 3; ++i) {
    pair.worker.Send(TextFrom(pair.worker_peer, pair.lane_peer, "by ZeroMQ"));
    MustReceive(pair.lane);
    pair.ReadLinks();
  }
  CHECK(pair.worker.CountLines().shm == 0);
  pair.lane.guard().Trust(pair.worker_peer.incarnation, pair.worker.guard().public_key());
  pair.MustLink();
  CHECK(pair.Names(pair.worker, pair.worker_peer, pair.lane, pair.lane_peer, 3));
}

TEST_CASE(
    "a link gives a process of this user without the key no memory, and takes none of its "
    "messages") {
  SharingPair pair({}, DrawKeys());
  const std::string key = pair.worker.guard().public_key();
  const PeerId member = NewPeer(9);  // it has not linked
  for (const PeerId& known : {pair.worker_peer, member})
    pair.lane.guard().Trust(known.incarnation, key);
  pair.MustLink();
  std::string message = "Pmsg";
  for (const uint32_t number : {1u, 8u, 0u})
    message.append(reinterpret_cast<const char*>(&number), 4);
  message += "12345678";
  RawControl segment{.kind = 2, .incarnation = 0, .lane = 4096, .layout_version = 0};
  for (const PeerId& claimed : {pair.worker_peer, member}) {
    for (const std::string& said :
         {MakeProof(""), MakeProof(std::string(16, 'x')), message, AsPacket(segment),
          MakeHello(claimed), AsPacket({.kind = 3}), std::string("reflect")}) {
      const int stranger = ConnectTo(pair.lane_peer);
      Say(stranger, MakeHello(claimed));
      if (said != "reflect") {
        Say(stranger, said);
      } else {  // the lane's own token
        RawControl proof;
        pollfd polled{stranger, POLLIN, 0};
        while (poll(&polled, 1, 0) == 0) pair.ReadLinks();
        REQUIRE(recv(stranger, &proof, sizeof(proof), 0) == sizeof(proof));
        CHECK(proof.kind == 5);
        CHECK(std::string(proof.token, 16) != std::string(16, 0));
        Say(stranger, MakeProof(std::string(proof.token, 16)));
      }
      for (const std::string& packet : ReadAll(stranger, pair.lane)) {
        RawControl control;
        REQUIRE(packet.size() == sizeof(control));
        std::memcpy(&control, packet.data(), sizeof(control));
        CHECK((control.kind == 5 || control.kind == 4));  // its proof, and that it reads no more
      }
      close(stranger);
    }
  }
  // One that names an unknown process waits for nothing.
  const int unknown = ConnectTo(pair.lane_peer);
  Say(unknown, MakeHello(NewPeer(11)));
  CHECK(pair.Names(pair.worker, pair.worker_peer, pair.lane, pair.lane_peer, 3));
  char byte;
  CHECK(recv(unknown, &byte, 1, MSG_DONTWAIT) == -1);
  close(unknown);
  CHECK(pair.lane.counters().undecodable == 0);
}

TEST_CASE("a false listener under a lane's name gets no token and no memory") {
  ZmqContext context(DrawKeys());
  for (const char* const token : {"", "xxxxxxxxxxxxxxxx"}) {
    const PeerId lane_peer = NewPeer(1, 3);
    const PeerId worker_peer = NewPeer(2);
    Transport lane(context, lane_peer, {});
    const Result<std::string> bound = lane.Bind(kAnyTcpPort);
    REQUIRE(bound.ok());
    const Result<UniqueFd> listener = SharedLink::Listen(MakeLinkPeer(lane_peer));
    REQUIRE(listener.ok());
    const auto pool = MustCreatePool();
    BufferPool buffers(kFloats, pool->source());
    const SharedBuffer shared = buffers.Take();  // so that there is a segment
    Transport worker(context, worker_peer, {});
    REQUIRE(worker.ShareMemory({.pool = pool}).ok());
    REQUIRE(worker.Dial(lane_peer, *bound, lane.guard().public_key()).ok());
    const UniqueFd link(accept(listener->get(), nullptr, nullptr));
    REQUIRE(link.is_open());
    Say(link.get(), MakeProof(token));
    const std::vector<std::string> packets = ReadAll(link.get(), worker);
    REQUIRE(!packets.empty());
    for (const std::string& packet : packets) {
      RawControl control;
      REQUIRE(packet.size() == sizeof(control));
      std::memcpy(&control, packet.data(), sizeof(control));
      CHECK((control.kind == 1 || control.kind == 4));
      CHECK(std::string(control.token, 16) == std::string(16, 0));
    }
    worker.Send(TextFrom(worker_peer, lane_peer, "by ZeroMQ"));
    CHECK(Text(MustReceive(lane)) == "by ZeroMQ");
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
