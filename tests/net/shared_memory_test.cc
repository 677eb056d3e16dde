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
#include <utility>

#include "net/shm/shared_links.h"
#include "tests/net/shared_fixture.h"

namespace pando {
namespace {

TEST_CASE("payloads of 1 MiB are read where they lie, both ways, once memory is shared") {
  SharingPair pair;
  pair.MustLink();
  CHECK(pair.Names(pair.worker, pair.worker_peer, pair.lane, pair.lane_peer, 3));
  CHECK(pair.Names(pair.lane, pair.lane_peer, pair.worker, pair.worker_peer, 4));
  CHECK(pair.worker.CountLines().tcp == 0);
  const LineTraffic traffic = pair.context.traffic().Read(LineKind::kShm);
  CHECK(traffic.sent > 2 * sizeof(float) * kFloats);
  CHECK(traffic.received > 2 * sizeof(float) * kFloats);
  CHECK(traffic.received <= traffic.sent);
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
  CheckRamp(Payload(first), 1);
  first = Envelope{};
  CHECK(pair.worker_buffers.Take()->data() != address);
  CheckRamp(Payload(second), 1);
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
  pair.worker.Send(MakePush(pair.worker_peer, pair.lane_peer, ToBlob(buffer)));
  buffer.reset();
  buffer = pair.worker_buffers.Take();  // before the lane has read the message
  REQUIRE(buffer->data() == address);
  Fill(*buffer, 9);
  pair.worker.Send(TextFrom(pair.worker_peer, pair.lane_peer, "after"));
  CHECK(Text(MustReceive(pair.lane)) == "after");
  CHECK(pair.lane.counters().overtaken == 1);
  CheckRamp(Payload(pair.Pushed(buffer)), 9);
}

TEST_CASE("a late copy of a message whose payload is still there can be read again") {
  SharingPair pair;
  pair.MustLink();
  const SharedBuffer buffer = pair.worker_buffers.Take();
  Fill(*buffer, 2);
  CheckRamp(Payload(pair.Pushed(buffer)), 2);
  CheckRamp(Payload(pair.Pushed(buffer)), 2);
  CHECK(pair.lane.counters().overtaken == 0);
}

TEST_CASE("a party that is bound no more has no links but those that it dialed") {
  SharingPair pair;
  pair.MustLink();
  pair.lane.Unbind();
  const Micros deadline = SteadyNow() + kEventDeadline;
  while (pair.worker.CountLines().shm != 0) {
    REQUIRE(SteadyNow() < deadline);
    pair.ReadLinks();
  }
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
  CheckRamp(Payload(received), 5);
}

TEST_CASE("a hung up party's hold lasts until it lets go, and its index is used again after") {
  SharingPair pair;
  pair.MustLink();
  SharedBuffer buffer = pair.lane_buffers.Take();
  const float* const address = buffer->data();
  Fill(*buffer, 6);
  pair.lane.Send(MakePush(pair.lane_peer, pair.worker_peer, ToBlob(buffer)));
  Envelope held = MustReceive(pair.worker);
  buffer.reset();
  pair.worker.HangUp(pair.lane_peer);
  for (int i = 0; i < 3; ++i) {
    pair.lane.Wait(SteadyNow() + std::chrono::milliseconds(1));

    SharedBuffer other = pair.lane_buffers.Take();
    CHECK(other->data() != address);
    CheckRamp(Payload(held), 6);
  }
  held = Envelope{};
  std::vector<SharedBuffer> taken;
  const auto is_taken_again = [&] {
    taken.push_back(pair.lane_buffers.Take());
    return taken.back()->data() == address;
  };
  while (!is_taken_again()) REQUIRE(taken.size() < 8);
  const Micros deadline = SteadyNow() + kEventDeadline;
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
    auto link = SharedLink::Connect({NewIncarnation(), 0}, self, {});
    if (!link.ok()) _exit(1);
    while (true) {
      (*link)->Receive();
      usleep(1000);
    }
  }
  std::unique_ptr<SharedLink> link;
  const Micros deadline = SteadyNow() + kEventDeadline;
  const auto poll_link = [&] {
    REQUIRE(SteadyNow() < deadline);
    usleep(1000);
    if (link == nullptr) link = *SharedLink::Accept(listener->get(), {pool});
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

TEST_CASE("a slot's pages are reported when its first payload arrives, until the reader goes") {
  constexpr size_t kFloats = 5000;  // five pages
  const auto pool = *SharedPool::Create();
  BufferSource source = pool->source();
  const FloatBuffer buffer = source.make(kFloats);
  std::vector<std::span<const std::byte>> reported;
  std::weak_ptr<const void> kept;
  {
    SharedReader reader(nullptr, [&](std::span<const std::byte> memory) {
      reported.push_back(memory);
      auto result = std::make_shared<const int>(0);
      kept = result;
      return result;
    });
    const uint32_t index = *pool->AddReader();
    const SharedPool::Facts facts = pool->segment(0);
    REQUIRE(reader.Map(0, UniqueFd(dup(facts.fd)), facts.size_bytes, index).ok());
    CHECK(reported.empty());
    const SharedReference reference = *pool->Find(std::as_bytes(buffer.span()));
    REQUIRE(pool->Offer(reference, index));
    Result<Blob> blob = reader.Open(reference);
    REQUIRE(blob.ok());
    REQUIRE(reader.Open(reference).ok());
    REQUIRE(reported.size() == 1);
    CHECK(reported[0].data() == blob->bytes().data());
    CHECK(reported[0].size() == 5 * 4096);
    CHECK_FALSE(kept.expired());
  }
  CHECK(kept.expired());
}

// ---- what cannot be -----------------------------------------------------------------------------

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

TEST_CASE("payloads travel as bytes if memory cannot be shared, and a note says this once") {
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
                        ": it lives on another host or in another network namespace, has ended, or "
                        "has no free descriptor; payloads go as bytes");
  BufferPool buffers(kFloats, pool->source());
  const SharedBuffer buffer = buffers.Take();
  Fill(*buffer, 1);
  worker.Send(MakePush(worker_peer, lane_peer, ToBlob(buffer)));
  CheckRamp(Payload(MustReceive(lane)), 1);
  CHECK(worker.CountLines().tcp == 1);
  CHECK(worker.CountLines().shm == 0);
  CHECK(worker.sharing_failure().ok());
  lane.Send(TextFrom(lane_peer, worker_peer, "alive"));  // so it is no race with its start
  CHECK(Text(MustReceive(worker)) == "alive");
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

TEST_CASE("a process with the maximum of readers refuses others, and both ends log it") {
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
  const Micros deadline = SteadyNow() + kEventDeadline;
  while (of_lane.empty() || of_worker.empty()) {
    REQUIRE(SteadyNow() < deadline);
    lane.Wait(SteadyNow() + std::chrono::milliseconds(1));
    worker.Wait(SteadyNow() + std::chrono::milliseconds(1));
  }
  CHECK(of_lane ==
        "no memory is shared with a peer that dialed us: the limit of peers that read this "
        "process's memory is reached; payloads go as bytes");
  CHECK(of_worker == "no memory is shared with " + *bound +
                         ": it refuses; its log may say why; payloads go as bytes");
  worker.Send(TextFrom(worker_peer, lane_peer, "hello"));
  MustReceive(lane);
  lane.Send(TextFrom(lane_peer, worker_peer, "alive"));
  MustReceive(worker);
  CHECK(!worker.sharing_failure().ok());
}

// Its messages are read after its link cannot be made again.
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
  const Micros deadline = SteadyNow() + kEventDeadline;
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

TEST_CASE("a buffer larger than a segment has a separate one") {
  const std::shared_ptr<SharedPool> pool = MustCreatePool();
  const FloatBuffer large = pool->source().make(SharedPool::kSegmentBytes / sizeof(float) + 1);
  CHECK(pool->segment_count() == 2);
  CHECK(pool->segment(1).size_bytes > SharedPool::kSegmentBytes + kSharedWordsBytes);
  CHECK(pool->Find(std::as_bytes(large.span()))->segment == 1);
}

}  // namespace
}  // namespace pando
