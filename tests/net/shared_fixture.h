// Used by the tests of shared memory (P42): two parties of this process that read each other's
// memory, as two processes would.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "common/buffer_pool.h"
#include "tests/net/net_fixture.h"

namespace pando {

inline constexpr size_t kFloats = (1 << 20) / sizeof(float);

inline std::shared_ptr<SharedPool> MustCreatePool(SharedPool::Sizes sizes = {}) {
  Result<std::shared_ptr<SharedPool>> pool = SharedPool::Create(sizes);
  REQUIRE_MESSAGE(pool.ok(), pool.status().message());
  return *pool;
}

inline void Fill(FloatBuffer& buffer, float first) {
  for (size_t i = 0; i < buffer.size(); ++i) buffer.data()[i] = first + static_cast<float>(i);
}

inline void CheckRamp(const Blob& payload, float first) {
  REQUIRE(payload.floats().size() == kFloats);
  bool is_equal = true;
  for (size_t i = 0; i < kFloats; ++i)
    is_equal &= payload.floats()[i] == first + static_cast<float>(i);
  CHECK(is_equal);
}

// A bound and a dialing party that both share memory.
struct SharingPair {
  explicit SharingPair(SharedPool::Sizes worker_sizes = {}, const Keys& keys = {})
      : context(keys),
        worker_pool(MustCreatePool(worker_sizes)),
        lane(context, lane_peer, {}),
        worker(context, worker_peer, {}) {
    bound = lane.Bind(kAnyTcpPort);
    REQUIRE(bound.ok());
    REQUIRE(lane.ShareMemory({.pool = lane_pool}).ok());
    REQUIRE(worker.ShareMemory({.pool = worker_pool}).ok());
    REQUIRE(worker.Dial(lane_peer, *bound, lane.guard().public_key()).ok());
  }
  // Until both have mapped all segments: before that payloads travel as bytes.
  void MustLink() {
    worker.Send(TextFrom(worker_peer, lane_peer, "hello"));
    MustReceive(lane);
    const Micros deadline = SteadyNow() + kEventDeadline;
    while (worker.CountLines().shm == 0 || !Names(lane, lane_peer, worker, worker_peer, 0)) {
      REQUIRE(SteadyNow() < deadline);
      ReadLinks();
    }
  }
  // Lets both read their links: only a transport that waits reads one.
  void ReadLinks() {
    lane.Wait(SteadyNow() + std::chrono::milliseconds(1));
    worker.Wait(SteadyNow() + std::chrono::milliseconds(1));
  }
  // Whether a payload of the sender's pool arrives where it lies: of 64-byte lines, within a page.
  bool Names(Transport& from, const PeerId& sender, Transport& to, const PeerId& receiver,
             float first) {
    return Names(from, sender, to, receiver, first,
                 (&from == &lane ? lane_buffers : worker_buffers).Take());
  }
  bool Names(Transport& from, const PeerId& sender, Transport& to, const PeerId& receiver,
             float first, const SharedBuffer& buffer) {
    Fill(*buffer, first);
    from.Send(MakePush(sender, receiver, ToBlob(buffer)));
    const Envelope received = MustReceive(to);
    CheckRamp(Payload(received), first);
    Fill(*buffer, first + 1);  // the reader sees a writer that breaks the rule
    return Payload(received).floats().front() == first + 1;
  }
  Envelope Pushed(const SharedBuffer& buffer) {
    worker.Send(MakePush(worker_peer, lane_peer, ToBlob(buffer)));
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

}  // namespace pando
