// Two parties of this process that share memory (P42), as two processes would.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "common/float_buffer.h"
#include "net/shared_links.h"
#include "tests/net/net_fixture.h"

namespace pando {
namespace {

constexpr size_t kFloats = (1 << 20) / sizeof(float);

std::shared_ptr<SharedPool> MustCreatePool(SharedPool::Sizes sizes = {}) {
  Result<std::shared_ptr<SharedPool>> pool = SharedPool::Create(sizes);
  REQUIRE_MESSAGE(pool.ok(), pool.status().message());
  return *pool;
}

Envelope PushOf(const PeerId& sender, const PeerId& receiver, Blob payload) {
  Push push;
  push.items.push_back({ShardId(1), Step(2), TreeNode(1), std::move(payload)});
  return {.sender = sender, .receiver = receiver, .message = std::move(push)};
}

Blob PayloadOf(const Envelope& envelope) {
  return std::get<Push>(envelope.message).items.at(0).payload;
}

void Fill(FloatBuffer& buffer, float first) {
  for (size_t i = 0; i < buffer.size(); ++i) buffer.data()[i] = first + static_cast<float>(i);
}

void CheckRamp(const Blob& payload, float first) {
  REQUIRE(payload.floats().size() == kFloats);
  bool is_equal = true;
  for (size_t i = 0; i < kFloats; ++i)
    is_equal &= payload.floats()[i] == first + static_cast<float>(i);
  CHECK(is_equal);
}

// A bound and a dialing party that both share memory.
struct SharingPair {
  explicit SharingPair(SharedPool::Sizes worker_sizes = {})
      : worker_pool(MustCreatePool(worker_sizes)),
        lane(context, lane_peer, {}),
        worker(context, worker_peer, {}) {
    bound = lane.Bind(kAnyTcpPort);
    REQUIRE(bound.ok());
    REQUIRE(lane.ShareMemory({.pool = lane_pool}).ok());
    REQUIRE(worker.ShareMemory({.pool = worker_pool}).ok());
    REQUIRE(worker.Dial(lane_peer, *bound).ok());
  }
  // Until both have mapped what there is: payloads go as bytes before.
  void MustLink() {
    worker.Send(TextFrom(worker_peer, lane_peer, "hello"));
    MustReceive(lane);
    const Micros deadline = SteadyNow() + kTestDeadline;
    while (worker.CountLines().shm == 0 || !Names(lane, lane_peer, worker, worker_peer, 0)) {
      REQUIRE(SteadyNow() < deadline);
      lane.Wait(SteadyNow() + std::chrono::milliseconds(1));
      worker.Wait(SteadyNow() + std::chrono::milliseconds(1));
    }
  }
  // Whether a payload of the sender's pool arrives where it lies: of 64-byte lines, within a page.
  bool Names(Transport& from, const PeerId& sender, Transport& to, const PeerId& receiver,
             float first) {
    const SharedBuffer buffer = (&from == &lane ? lane_buffers : worker_buffers).Take();
    Fill(*buffer, first);
    from.Send(PushOf(sender, receiver, ToBlob(buffer)));
    const Envelope received = MustReceive(to);
    CheckRamp(PayloadOf(received), first);
    Fill(*buffer, first + 1);  // a writer that breaks the rule is seen by who reads its memory
    return PayloadOf(received).floats().front() == first + 1;
  }
  Envelope Pushed(const SharedBuffer& buffer) {
    worker.Send(PushOf(worker_peer, lane_peer, ToBlob(buffer)));
    return MustReceive(lane);
  }

  ZmqContext context;
  PeerId lane_peer = NewPeer(1, 3);
  PeerId worker_peer = NewPeer(2);
  std::shared_ptr<SharedPool> lane_pool = MustCreatePool();
  std::shared_ptr<SharedPool> worker_pool;
  Result<std::string> bound = std::string();
  BufferPool lane_buffers{kFloats, lane_pool->source()};
  BufferPool worker_buffers{kFloats, worker_pool->source()};
  Transport lane;
  Transport worker;
};

TEST_CASE("payloads of 1 MiB are read where they lie, both ways, once memory is shared") {
  SharingPair pair;
  pair.MustLink();
  CHECK(pair.Names(pair.worker, pair.worker_peer, pair.lane, pair.lane_peer, 3));
  CHECK(pair.Names(pair.lane, pair.lane_peer, pair.worker, pair.worker_peer, 4));
  CHECK(pair.worker.CountLines().tcp == 0);
}

TEST_CASE("a part of a buffer, small payloads and payloads from elsewhere arrive together") {
  SharingPair pair;
  pair.MustLink();
  const SharedBuffer buffer = pair.worker_buffers.Take();
  Fill(*buffer, 0);
  auto ours = std::make_shared<FloatBuffer>(kFloats);
  Fill(*ours, 7);
  Push push;
  push.items.push_back({ShardId(0), Step(2), TreeNode(1), ToBlob(ours)});
  push.items.push_back({ShardId(1), Step(2), TreeNode(1), ToBlob(buffer, 4096, 8192)});
  push.items.push_back({ShardId(2), Step(2), TreeNode(1), ToBlob(buffer, 16, 16)});
  push.items.push_back({ShardId(3), Step(2), TreeNode(1), ToBlob(buffer, 65536)});
  push.items.push_back({ShardId(4), Step(2), TreeNode(1), ToBlob(buffer, 2, 8192)});
  pair.worker.Send(
      {.sender = pair.worker_peer, .receiver = pair.lane_peer, .message = std::move(push)});
  const Envelope received = MustReceive(pair.lane);
  const auto& items = std::get<Push>(received.message).items;
  REQUIRE(items.size() == 5);
  CheckRamp(items[0].payload, 7);
  CHECK(items[1].payload.floats().size() == 8192);
  CHECK(items[1].payload.floats().front() == 4096);
  CHECK(items[2].payload.floats().back() == 31);
  CHECK(items[3].payload.floats().back() == static_cast<float>(kFloats - 1));
  CHECK(items[4].payload.floats().front() == 2);  // as an encoded shard may lie: at 8 bytes
}

TEST_CASE("once memory is shared messages go by the link, in order, but for long ones") {
  SharingPair pair;
  pair.MustLink();
  const uint64_t before = pair.worker.counters().sent_by_link;
  for (int i = 0; i < 100; ++i)
    pair.worker.Send(TextFrom(pair.worker_peer, pair.lane_peer, std::to_string(i)));
  CHECK(pair.worker.counters().sent_by_link == before + 100);
  for (int i = 0; i < 100; ++i) CHECK(TextOf(MustReceive(pair.lane)) == std::to_string(i));
  pair.lane.Send(TextFrom(pair.lane_peer, pair.worker_peer, "back"));
  CHECK(TextOf(MustReceive(pair.worker)) == "back");
  CHECK(pair.lane.counters().sent_by_link > 0);

  auto heap = std::make_shared<FloatBuffer>(kFloats);  // a payload that cannot be named
  Fill(*heap, 8);
  pair.worker.Send(PushOf(pair.worker_peer, pair.lane_peer, ToBlob(heap)));
  CHECK(pair.worker.counters().sent_by_link == before + 100);
  CheckRamp(PayloadOf(MustReceive(pair.lane)), 8);
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
  for (size_t i = 0; i < kCount; ++i) received.insert(TextOf(MustReceive(pair.lane)));
  CHECK(received.size() == kCount);
}

// Another worker of the pair's lane, linked with it.
std::unique_ptr<Transport> MustJoin(SharingPair& pair, const PeerId& peer) {
  auto joiner = std::make_unique<Transport>(pair.context, peer, Transport::Options{});
  REQUIRE(joiner->ShareMemory({.pool = MustCreatePool()}).ok());
  REQUIRE(joiner->Dial(pair.lane_peer, *pair.bound).ok());
  const Micros deadline = SteadyNow() + kTestDeadline;
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
    const std::string text = TextOf(MustReceive(pair.lane));
    CHECK(text != last);
    last = text;
  }
}

TEST_CASE("what a peer has said last is heard after its end, read or not what it was told") {
  SharingPair pair;
  const PeerId peer = NewPeer(5);
  for (const bool has_read_all : {true, false}) {
    std::unique_ptr<Transport> other = MustJoin(pair, peer);
    for (int i = 0; i < 3; ++i) other->Send(TextFrom(peer, pair.lane_peer, std::to_string(i)));
    CHECK(other->counters().sent_by_link == 3);
    if (!has_read_all) pair.lane.Send(TextFrom(pair.lane_peer, peer, "too late"));
    other.reset();
    for (int i = 0; i < 3; ++i) CHECK(TextOf(MustReceive(pair.lane)) == std::to_string(i));
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
  CheckRamp(PayloadOf(pair.Pushed(second)), 1);  // as bytes
  CHECK(pair.worker_pool->segment_count() == 2);
  for (int i = 0; i < sent_count; ++i) CHECK(TextOf(MustReceive(pair.worker)) == text);
  pair.lane.Send(TextFrom(pair.lane_peer, pair.worker_peer, "go on"));
  CHECK(TextOf(MustReceive(pair.worker)) == "go on");
  const Envelope received = pair.Pushed(second);
  Fill(*second, 2);
  CHECK(PayloadOf(received).floats().front() == 2);  // read where it lies
}

TEST_CASE("who is isolated neither sends nor hears by a link") {
  SharingPair pair;
  pair.MustLink();
  pair.context.IsolateUntil(kNever);
  const uint64_t isolated = pair.worker.counters().isolated;
  pair.worker.Send(TextFrom(pair.worker_peer, pair.lane_peer, "not sent"));
  CHECK(pair.worker.counters().isolated == isolated + 1);
  pair.context.IsolateUntil(SteadyNow());
  pair.worker.Send(TextFrom(pair.worker_peer, pair.lane_peer, "not heard"));
  pair.lane.Wait(SteadyNow() + kTestDeadline);
  pair.context.IsolateUntil(kNever);
  Envelope envelope;
  CHECK_FALSE(pair.lane.Receive(&envelope));
  CHECK(pair.lane.counters().isolated == 1);
  pair.context.IsolateUntil(SteadyNow());
  pair.worker.Send(TextFrom(pair.worker_peer, pair.lane_peer, "heard"));
  CHECK(TextOf(MustReceive(pair.lane)) == "heard");
}

TEST_CASE("a buffer that a reader holds is not written again, and is once it has let go") {
  SharingPair pair;
  pair.MustLink();
  SharedBuffer buffer = pair.worker_buffers.Take();
  const float* const address = buffer->data();
  Fill(*buffer, 1);
  Envelope first = pair.Pushed(buffer);
  Envelope second = pair.Pushed(buffer);  // one hold for both
  buffer.reset();
  SharedBuffer other = pair.worker_buffers.Take();
  CHECK(other->data() != address);
  CheckRamp(PayloadOf(first), 1);
  first = Envelope{};
  CHECK(pair.worker_buffers.Take()->data() != address);
  CheckRamp(PayloadOf(second), 1);
  second = Envelope{};
  SharedBuffer a = pair.worker_buffers.Take();
  SharedBuffer b = pair.worker_buffers.Take();
  CHECK((a->data() == address || b->data() == address));
}

TEST_CASE("a message whose payload has been written again is lost, and counted") {
  SharingPair pair;
  pair.MustLink();
  SharedBuffer buffer = pair.worker_buffers.Take();
  const float* const address = buffer->data();
  pair.worker.Send(PushOf(pair.worker_peer, pair.lane_peer, ToBlob(buffer)));
  buffer.reset();
  buffer = pair.worker_buffers.Take();  // before the lane has read the message
  REQUIRE(buffer->data() == address);
  Fill(*buffer, 9);
  pair.worker.Send(TextFrom(pair.worker_peer, pair.lane_peer, "after"));
  CHECK(TextOf(MustReceive(pair.lane)) == "after");
  CHECK(pair.lane.counters().overtaken == 1);
  CheckRamp(PayloadOf(pair.Pushed(buffer)), 9);
}

TEST_CASE("a late copy of a message whose payload is still there can be read again") {
  SharingPair pair;
  pair.MustLink();
  const SharedBuffer buffer = pair.worker_buffers.Take();
  Fill(*buffer, 2);
  CheckRamp(PayloadOf(pair.Pushed(buffer)), 2);
  CheckRamp(PayloadOf(pair.Pushed(buffer)), 2);
  CHECK(pair.lane.counters().overtaken == 0);
}

TEST_CASE("what a party reads stays as it is when the other has gone") {
  Envelope received;
  {
    SharingPair pair;
    pair.MustLink();
    SharedBuffer buffer = pair.worker_buffers.Take();
    Fill(*buffer, 5);
    received = pair.Pushed(buffer);
  }
  CheckRamp(PayloadOf(received), 5);
}

TEST_CASE("a hung up party's hold lasts until it lets go, and its index is used again after") {
  SharingPair pair;
  pair.MustLink();
  SharedBuffer buffer = pair.lane_buffers.Take();
  const float* const address = buffer->data();
  Fill(*buffer, 6);
  pair.lane.Send(PushOf(pair.lane_peer, pair.worker_peer, ToBlob(buffer)));
  Envelope held = MustReceive(pair.worker);
  buffer.reset();
  pair.worker.HangUp(pair.lane_peer);
  for (int i = 0; i < 3; ++i) {
    pair.lane.Wait(SteadyNow() + std::chrono::milliseconds(1));

    SharedBuffer other = pair.lane_buffers.Take();
    CHECK(other->data() != address);
    CheckRamp(PayloadOf(held), 6);
  }
  held = Envelope{};
  std::vector<SharedBuffer> taken;
  const auto is_taken_again = [&] {
    taken.push_back(pair.lane_buffers.Take());
    return taken.back()->data() == address;
  };
  while (!is_taken_again()) REQUIRE(taken.size() < 8);
  const Micros deadline = SteadyNow() + kTestDeadline;
  for (size_t readers = 0; readers < kSharedReadersMax;) {
    REQUIRE(SteadyNow() < deadline);
    pair.lane.Wait(SteadyNow() + std::chrono::milliseconds(1));
    readers += pair.lane_pool->AddReader().has_value() ? 1 : 0;
  }
}

// ---- the dead -----------------------------------------------------------------------------------

TEST_CASE("what a killed reader held is free once the kernel has closed its connection") {
  const std::shared_ptr<SharedPool> pool = MustCreatePool();
  BufferPool buffers(kFloats, pool->source());
  const LinkPeer self{NewIncarnation(), 0};
  const Result<UniqueFd> listener = SharedLink::Listen(self);
  REQUIRE(listener.ok());
  SharedBuffer buffer = buffers.Take();
  const float* const address = buffer->data();
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {  // reads what it is sent until it is killed, or we are
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    auto link = SharedLink::Connect({NewIncarnation(), 0}, self, nullptr);
    if (!link.ok()) _exit(1);
    while (true) {
      (*link)->Receive();
      usleep(1000);
    }
  }
  std::unique_ptr<SharedLink> link;
  const Micros deadline = SteadyNow() + kTestDeadline;
  const auto poll_link = [&] {
    REQUIRE(SteadyNow() < deadline);
    usleep(1000);
    if (link == nullptr) link = *SharedLink::Accept(listener->get(), pool);
    if (link != nullptr) link->Receive();
  };
  while (link == nullptr || !link->shares()) poll_link();
  // As the child's acquiring would leave it: the word is in memory that both have mapped.
  const SharedReference reference = *pool->Find(ToBlob(buffer).bytes());
  REQUIRE(pool->Offer(reference, 0));
  Result<SharedSegment> mapped =
      SharedSegment::Map(UniqueFd(dup(pool->segment(0).fd)), pool->segment(0).size_bytes);
  REQUIRE(mapped.ok());
  mapped->word(reference.slot, 0).store(HeldWord(reference.sequence));
  buffer.reset();
  CHECK(buffers.Take()->data() != address);
  kill(child, SIGKILL);
  REQUIRE(waitpid(child, nullptr, 0) == child);
  while (!link->is_closed()) poll_link();
  link.reset();
  SharedBuffer a = buffers.Take();
  SharedBuffer b = buffers.Take();
  CHECK((a->data() == address || b->data() == address));
}

// ---- strangers, and what cannot be --------------------------------------------------------------

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

TEST_CASE("a stranger that speaks garbage to the Unix socket disturbs nobody") {
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
std::string HelloOf(const PeerId& peer) {
  const struct {
    uint32_t magic = 0x6d68'7350, kind = 1;
    uint64_t incarnation, lane, layout_version = 2;
  } hello{.incarnation = peer.incarnation.value(), .lane = peer.lane};
  return {reinterpret_cast<const char*>(&hello), sizeof(hello)};
}

TEST_CASE("a peer whose packets lie is cut off, and disturbs nobody") {
  SharingPair pair;
  pair.MustLink();
  std::string lying_sizes = "Pmsg";
  for (const uint32_t number : {2u, 8u, 4096u})
    lying_sizes.append(reinterpret_cast<const char*>(&number), sizeof(number));
  for (const std::string& packet :
       {lying_sizes, std::string("Pmsg\xff\xff\xff\xff"), std::string(200'000, 'x')}) {
    const PeerId liar_peer = NewPeer(7);
    const int liar = ConnectTo(pair.lane_peer);
    for (const std::string& said : {HelloOf(liar_peer), packet})
      REQUIRE(send(liar, said.data(), said.size(), 0) == static_cast<ssize_t>(said.size()));
    char bytes[64];
    ssize_t size = 1;
    const Micros deadline = SteadyNow() + kTestDeadline;
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
  CHECK(TextOf(MustReceive(pair.lane)) == "I");
  CHECK(pair.lane.counters().misattributed == 1);
}

int MemoryFile(size_t bytes, int seals) {
  const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  REQUIRE(ftruncate(fd, static_cast<off_t>(bytes)) == 0);
  REQUIRE(fcntl(fd, F_ADD_SEALS, seals) == 0);
  return fd;
}

TEST_CASE("a segment that lies about its size, or may shrink, is not mapped") {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  constexpr size_t kBytes = kSharedWordsBytes + 4096;
  const auto map = [](int fd, uint64_t said) {
    SharedReader reader(nullptr);
    return reader.Map(0, UniqueFd(fd), said, 0).code();
  };
  CHECK(map(MemoryFile(kBytes, kSeals), kBytes) == StatusCode::kOk);
  CHECK(map(MemoryFile(kBytes, kSeals), kBytes + 4096) == StatusCode::kCorrupt);
  CHECK(map(MemoryFile(4096, kSeals), 4096) == StatusCode::kCorrupt);
  CHECK(map(MemoryFile(kBytes, F_SEAL_GROW), kBytes) == StatusCode::kCorrupt);
  CHECK(map(open("/dev/null", O_RDWR | O_CLOEXEC), kBytes) == StatusCode::kCorrupt);
  CHECK(map(-1, kBytes) == StatusCode::kCorrupt);
}

TEST_CASE("a reference beyond its segment's end is refused before anything is read") {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  constexpr size_t kBytes = kSharedWordsBytes + 4096;
  SharedReader reader(nullptr);
  REQUIRE(reader.Map(0, UniqueFd(MemoryFile(kBytes, kSeals)), kBytes, 0).ok());
  const auto open = [&](const SharedReference& r) { return reader.Open(r).status().code(); };
  const SharedReference sound{.sequence = 1, .offset_bytes = kSharedWordsBytes, .size_bytes = 4096};
  CHECK(open(sound) == StatusCode::kUnavailable);  // not offered
  SharedReference r = sound;
  r.size_bytes = 4097;
  CHECK(open(r) == StatusCode::kCorrupt);
  r.size_bytes = UINT64_MAX;
  CHECK(open(r) == StatusCode::kCorrupt);
  r = sound;
  r.offset_bytes = UINT64_MAX - 63;
  CHECK(open(r) == StatusCode::kCorrupt);
  r.offset_bytes = 0;  // the words
  CHECK(open(r) == StatusCode::kCorrupt);
  r.offset_bytes = kSharedWordsBytes + 4;
  CHECK(open(r) == StatusCode::kCorrupt);
  r = sound;
  r.slot = kSharedSlotsMax;
  CHECK(open(r) == StatusCode::kCorrupt);
  r = sound;
  r.segment = 1;
  CHECK(open(r) == StatusCode::kUnavailable);  // named by a link that was there before this one
}

TEST_CASE("where memory cannot be shared payloads go as bytes, and it is told once") {
  ZmqContext context;
  const PeerId lane_peer = NewPeer(1, 3), worker_peer = NewPeer(2);
  Transport lane(context, lane_peer, {}), worker(context, worker_peer, {});
  const Result<std::string> bound = lane.Bind(kAnyTcpPort);
  REQUIRE(bound.ok());
  const std::shared_ptr<SharedPool> pool = MustCreatePool();
  std::vector<std::string> notes;
  REQUIRE(worker
              .ShareMemory({.pool = pool,
                            .is_required = true,
                            .on_note = [&](const std::string& text) { notes.push_back(text); }})
              .ok());
  REQUIRE(worker.Dial(lane_peer, *bound).ok());
  REQUIRE(notes.size() == 1);
  CHECK(notes[0] == "no memory is shared with " + *bound +
                        ": it lives on another host or in another network namespace, is gone, or "
                        "can have no further descriptor; payloads go as bytes");
  BufferPool buffers(kFloats, pool->source());
  const SharedBuffer buffer = buffers.Take();
  Fill(*buffer, 1);
  worker.Send(PushOf(worker_peer, lane_peer, ToBlob(buffer)));
  CheckRamp(PayloadOf(MustReceive(lane)), 1);
  CHECK(worker.CountLines().tcp == 1);
  CHECK(worker.CountLines().shm == 0);
  CHECK(worker.sharing_failure().ok());
  lane.Send(TextFrom(lane_peer, worker_peer, "alive"));  // so it is no race with its start
  CHECK(TextOf(MustReceive(worker)) == "alive");
  CHECK(!worker.sharing_failure().ok());
}

TEST_CASE("where files may not grow (ulimit -f) there is no segment, and no death") {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);  // as pando does
    const rlimit limit{1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    const auto pool = SharedPool::Create();
    const bool says_why = !pool.ok() && pool.status().message().ends_with("File too large");
    _exit(says_why ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("who has as many readers as can be refuses further ones, and both ends say so") {
  ZmqContext context;
  const PeerId lane_peer = NewPeer(1, 3), worker_peer = NewPeer(2);
  Transport lane(context, lane_peer, {}), worker(context, worker_peer, {});
  const Result<std::string> bound = lane.Bind(kAnyTcpPort);
  REQUIRE(bound.ok());
  const std::shared_ptr<SharedPool> full = MustCreatePool();
  while (full->AddReader()) {
  }
  std::string of_lane, of_worker;
  REQUIRE(lane.ShareMemory({.pool = full, .on_note = [&](auto& text) { of_lane = text; }}).ok());
  REQUIRE(worker
              .ShareMemory({.pool = MustCreatePool(),
                            .is_required = true,
                            .on_note = [&](auto& text) { of_worker = text; }})
              .ok());
  REQUIRE(worker.Dial(lane_peer, *bound).ok());
  const Micros deadline = SteadyNow() + kTestDeadline;
  while (of_lane.empty() || of_worker.empty()) {
    REQUIRE(SteadyNow() < deadline);
    lane.Wait(SteadyNow() + std::chrono::milliseconds(1));
    worker.Wait(SteadyNow() + std::chrono::milliseconds(1));
  }
  CHECK(of_lane ==
        "no memory is shared with a peer that dialed us: as many peers read this process's memory "
        "as can; payloads go as bytes");
  CHECK(of_worker == "no memory is shared with " + *bound +
                         ": it refuses; its log may say why; payloads go as bytes");
  worker.Send(TextFrom(worker_peer, lane_peer, "hello"));
  MustReceive(lane);
  lane.Send(TextFrom(lane_peer, worker_peer, "alive"));
  MustReceive(worker);
  CHECK(!worker.sharing_failure().ok());
}

// What it had sent is read after its link cannot be made again.
TEST_CASE("a peer that shared memory and died is no reason to say that none can be shared") {
  ZmqContext context;
  const PeerId lane_peer = NewPeer(1, 3), worker_peer = NewPeer(2);
  std::optional<Transport> lane(std::in_place, context, lane_peer, Transport::Options{});
  constexpr Micros kOften = std::chrono::milliseconds(1);
  Transport worker(context, worker_peer, {.link_again = kOften});
  const Result<std::string> bound = lane->Bind(kAnyTcpPort);
  REQUIRE(bound.ok());
  REQUIRE(lane->ShareMemory({.pool = MustCreatePool()}).ok());
  REQUIRE(worker.ShareMemory({.pool = MustCreatePool(), .is_required = true}).ok());
  REQUIRE(worker.Dial(lane_peer, *bound).ok());
  worker.Send(TextFrom(worker_peer, lane_peer, "hello"));
  MustReceive(*lane);
  const Micros deadline = SteadyNow() + kTestDeadline;
  while (worker.CountLines().shm == 0) {
    REQUIRE(SteadyNow() < deadline);
    lane->Wait(SteadyNow() + std::chrono::milliseconds(1));
    worker.Wait(SteadyNow() + std::chrono::milliseconds(1));
  }
  lane->Send(TextFrom(lane_peer, worker_peer, "last words"));
  lane.reset();
  while (worker.CountLines().shm != 0) {
    REQUIRE(SteadyNow() < deadline);
    worker.Wait(SteadyNow() + std::chrono::milliseconds(1));
  }
  const Micros dead_for = SteadyNow() + 20 * kOften;
  while (SteadyNow() < dead_for) worker.Wait(dead_for);
  MustReceive(worker);
  CHECK(worker.sharing_failure().ok());
}

TEST_CASE("memory of a pool that is gone is another's") {
  const std::shared_ptr<SharedPool> pool = MustCreatePool();
  const float* address = nullptr;
  {
    BufferPool buffers(kFloats, pool->source());
    const SharedBuffer buffer = buffers.Take();
    address = buffer->data();
  }
  BufferPool other(kFloats, pool->source());
  CHECK(other.Take()->data() == address);
  BufferPool small(8, pool->source());
  CHECK(!pool->Find(ToBlob(small.Take()).bytes()).has_value());
}

TEST_CASE("a buffer of more than a segment has one of its own") {
  const std::shared_ptr<SharedPool> pool = MustCreatePool();
  const FloatBuffer large = pool->source().make(SharedPool::kSegmentBytes / sizeof(float) + 1);
  CHECK(pool->segment_count() == 2);
  CHECK(pool->segment(1).size_bytes > SharedPool::kSegmentBytes + kSharedWordsBytes);
  CHECK(pool->Find(std::as_bytes(large.span()))->segment == 1);
}

}  // namespace
}  // namespace pando
