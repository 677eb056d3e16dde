#include "server/incoming_transfer.h"
#include "server/outgoing_transfer.h"

#include <random>

#include "tests/server/lane_fixture.h"

namespace pando {
namespace {

using std::chrono::milliseconds;

SharedBuffer Ramp(size_t floats, float first) {
  auto buffer = std::make_shared<FloatBuffer>(floats);
  for (size_t i = 0; i < floats; ++i) buffer->data()[i] = first + static_cast<float>(i);
  return buffer;
}

constexpr size_t kShardFloats = 3 * kChunkFloats + 5;
constexpr IncomingTransfer::Sizes kSizes{kShardFloats, 2 * kShardFloats};
constexpr ViewId kPair{1, 7};

OutgoingTransfer NewTransfer() {
  return OutgoingTransfer(ShardId(4), kPair,
                          {{Version(8), Ramp(kShardFloats, 1), nullptr, {}},
                           {Version(9), Ramp(kShardFloats, 2), Ramp(2 * kShardFloats, 3), {}}});
}

TEST_CASE("an image arrives whole, even if messages are lost on the way") {
  OutgoingTransfer source = NewTransfer();
  std::optional<IncomingTransfer> newcomer;
  std::mt19937 random(1);
  for (int turn = 0; turn < 1000 && !source.is_complete(); ++turn) {
    const std::optional<Chunk> chunk = source.Next();
    if (!chunk) {
      source.Rewind();
      continue;
    }
    if (random() % 3 == 0) continue;  // lost
    REQUIRE(IncomingTransfer::IsSound(*chunk, kSizes));
    CHECK(chunk->payload.floats().size() <= kChunkFloats);
    if (!newcomer) newcomer.emplace(*chunk, kSizes);
    newcomer->Take(*chunk);
    if (random() % 3 != 0) source.OnAck(newcomer->Ack());
  }
  REQUIRE(newcomer->is_complete());
  const std::vector<VersionRecord> records = newcomer->TakeRecords();
  REQUIRE(records.size() == 2);
  CHECK(std::ranges::equal(records[0].parameters->span(), Ramp(kShardFloats, 1)->span()));
  CHECK(std::ranges::equal(records[1].parameters->span(), Ramp(kShardFloats, 2)->span()));
  CHECK(std::ranges::equal(records[1].state->span(), Ramp(2 * kShardFloats, 3)->span()));
  CHECK(records[0].state == nullptr);
}

TEST_CASE("no more than the window is unacknowledged") {
  OutgoingTransfer source = NewTransfer();
  size_t floats = 0;
  while (const auto chunk = source.Next()) floats += chunk->payload.floats().size();
  CHECK(floats >= kChunkWindowFloats);
  CHECK(floats < kChunkWindowFloats + kChunkFloats);
  CHECK_FALSE(source.OnAck({ShardId(4), kPair, Version(8), 10}));  // of another image
  CHECK_FALSE(source.OnAck({ShardId(4), kPair, Version(9), 0}));
  CHECK_FALSE(source.OnAck({ShardId(4), kPair, Version(9), 100 * kShardFloats}));
  CHECK(source.OnAck({ShardId(4), kPair, Version(9), kChunkFloats}));
  CHECK(source.Next().has_value());
}

TEST_CASE("a chunk that cannot be of the shard is refused") {
  const Chunk good = *NewTransfer().Next();
  CHECK(IncomingTransfer::IsSound(good, kSizes));
  Chunk bad = good;
  bad.versions = {};
  CHECK_FALSE(IncomingTransfer::IsSound(bad, kSizes));
  bad.versions = {Version(9), Version(9)};
  CHECK_FALSE(IncomingTransfer::IsSound(bad, kSizes));
  bad.versions = {Version(1), Version(2), Version(3), Version(4)};
  CHECK_FALSE(IncomingTransfer::IsSound(bad, kSizes));
  bad = good;
  ++bad.image_floats;
  CHECK_FALSE(IncomingTransfer::IsSound(bad, kSizes));
  bad = good;
  bad.offset = good.image_floats;
  CHECK_FALSE(IncomingTransfer::IsSound(bad, kSizes));
  bad.offset = UINT64_MAX;
  CHECK_FALSE(IncomingTransfer::IsSound(bad, kSizes));
}

// ---- between lanes -----------------------------------------------------------------------------

// Shard 0 on server 1, at version 3; server 2 is empty.
void StartTransfer(LaneFixture& f, std::vector<uint32_t> backups = {}) {
  f.Place(0, 1, std::move(backups));
  f.Place(1, 1, {});
  f.Announce();
  f.GiveScalars();
  f.Deliver();
  for (uint64_t step = 0; step < 3; ++step) {
    f.PushStep(1, step);
    f.Deliver();
  }
}

bool IsReported(const LaneFixture& f, ViewId pair) {
  for (const Synced& synced : f.Heard<Synced>(LaneFixture::kScheduler)) {
    for (const SyncedItem& item : synced.items) {
      if (item.pair == pair && item.newcomer == LaneFixture::Server(2)) return true;
    }
  }
  return false;
}

TEST_CASE("a newcomer gets both versions and the optimizer's state, and is reported") {
  LaneFixture f(2);
  StartTransfer(f);
  const ViewId pair = f.NextViewId();
  f.Place(0, 1, {}, {{2, pair}});
  f.Announce();
  f.Deliver();
  REQUIRE(f.shard(2).has_data());
  CHECK(f.shard(2).records().Find(Version(2)) != nullptr);
  CHECK(f.shard(2).committed() == Version(3));
  CHECK(f.shard(2).records().NewestHash() == f.shard(1).records().NewestHash());
  f.Wait(milliseconds(500));
  CHECK(IsReported(f, pair));
  // In sync it follows with the same bits: the state is right.
  f.Place(0, 1, {2});
  f.Announce();
  f.PushStep(1, 3);
  f.Deliver();
  CHECK(f.Shown() == Version(4));
  CHECK(f.shard(2).newest() == Version(4));
  CHECK(f.shard(2).records().NewestHash() == f.shard(1).records().NewestHash());
  f.heard.clear();
  f.Wait(milliseconds(500));
  CHECK_FALSE(IsReported(f, pair));  // the view has answered
}

TEST_CASE("a primary requires a newcomer's acknowledgements before it reports it (P24)") {
  LaneFixture f(2);
  StartTransfer(f);
  const ViewId pair = f.NextViewId();
  f.Place(0, 1, {}, {{2, pair}});
  f.Announce();
  f.Wait(milliseconds(100));
  CHECK(IsReported(f, pair));
  f.PushStep(1, 3);
  f.Wait(milliseconds(500), [](const Envelope& e) { return Is<RootAck>(e); });
  CHECK(f.Shown() == Version(3));
  f.Wait(milliseconds(2000));
  CHECK(f.Shown() == Version(4));
}

TEST_CASE("a primary makes at most two versions that a newcomer lacks (I6)") {
  LaneFixture f(2);
  StartTransfer(f);
  const ViewId pair = f.NextViewId();
  f.Place(0, 1, {}, {{2, pair}});
  f.Announce();
  const auto no_chunks = [](const Envelope& e) { return Is<Chunk>(e); };
  for (uint64_t step = 3; step < 6; ++step) {
    f.PushStep(1, step);
    f.Deliver(no_chunks);
  }
  CHECK(f.shard(1).newest() == Version(5));
  CHECK(f.shard(1).committed() == Version(4));
  CHECK_FALSE(IsReported(f, pair));
  f.Wait(milliseconds(2000));  // image, then both roots, then what was held of step 5
  CHECK(f.shard(2).newest() == Version(6));
  CHECK(f.shard(1).committed() == Version(6));
  CHECK(IsReported(f, pair));
}

TEST_CASE("the image is frozen when the newest version is committed") {
  LaneFixture f(3);
  StartTransfer(f, {3});
  f.PushStep(1, 3);
  const auto no_acks = [](const Envelope& e) { return Is<RootAck>(e); };
  f.Deliver(no_acks);
  const ViewId pair = f.NextViewId();
  f.Place(0, 1, {3}, {{2, pair}});
  f.Announce();
  f.Wait(milliseconds(100), no_acks);
  CHECK_FALSE(f.shard(2).has_data());
  f.Wait(milliseconds(500));
  REQUIRE(f.shard(2).has_data());
  CHECK(f.shard(2).newest() == Version(4));
  CHECK(f.shard(2).records().NewestHash() == f.shard(1).records().NewestHash());
}

TEST_CASE("lost chunks and acknowledgements are repeated, also across a view that keeps the pair") {
  LaneFixture f(2);
  StartTransfer(f);
  const ViewId pair = f.NextViewId();
  f.Place(0, 1, {}, {{2, pair}});
  f.Announce();
  f.Deliver([](const Envelope& e) { return Is<Chunk>(e); });
  f.Announce();
  f.Deliver([](const Envelope& e) { return Is<ChunkAck>(e); });
  f.Wait(milliseconds(2000));
  CHECK(f.shard(2).has_data());
  CHECK(IsReported(f, pair));
}

TEST_CASE("a new pair starts over, and chunks of the old one are not taken (P24)") {
  LaneFixture f(2);
  StartTransfer(f);
  f.Place(0, 1, {}, {{2, f.NextViewId()}});
  f.Announce();
  std::vector<Envelope> old_chunks;
  f.Deliver([&](const Envelope& e) {
    if (Is<Chunk>(e)) old_chunks.push_back(e);
    return Is<Chunk>(e);
  });
  REQUIRE_FALSE(old_chunks.empty());
  const ViewId pair = f.NextViewId();
  f.Place(0, 1, {}, {{2, pair}});
  f.Announce();
  f.Deliver([](const Envelope& e) { return Is<Chunk>(e); });
  f.PushStep(1, 3);
  f.Deliver([](const Envelope& e) { return Is<Chunk>(e); });
  for (const Envelope& chunk : old_chunks) f.queue.push_back(chunk);
  f.Deliver([&](const Envelope& e) {
    const auto* chunk = std::get_if<Chunk>(&e.message);
    return chunk != nullptr && chunk->pair == pair;
  });
  CHECK_FALSE(f.shard(2).has_data());
  f.Wait(milliseconds(2000));
  CHECK(f.shard(2).newest() == Version(4));
  CHECK(IsReported(f, pair));
}

TEST_CASE("a replica that is synced again under a new pair forgets what it had") {
  LaneFixture f(2);
  StartTransfer(f, {2});
  f.Place(0, 1, {}, {{2, f.NextViewId()}});
  f.Announce({2});
  f.Deliver();
  CHECK_FALSE(f.shard(2).has_data());
  f.Place(0, 1, {});
  f.Announce({2});
  f.Deliver();
  CHECK_FALSE(f.Has(2));
}

TEST_CASE("the metric shard's newcomer is reported once the scheduler knows the rows it lacks") {
  LaneFixture f(2);
  StartTransfer(f);
  for (uint64_t step = 0; step < 3; ++step) {
    f.PushStep(1, step, 1);
    f.Deliver();
  }
  const ViewId pair = f.NextViewId();
  f.Place(1, 1, {}, {{2, pair}});
  f.Announce();
  f.SendFrom(LaneFixture::kScheduler, 1, ProgressAck{Version(2), Step(2)});
  f.Wait(milliseconds(1000));
  CHECK(f.shard(2, 1).has_data());
  CHECK_FALSE(IsReported(f, pair));
  f.SendFrom(LaneFixture::kScheduler, 1, ProgressAck{Version(3), Step(3)});
  f.Wait(milliseconds(50));
  CHECK(IsReported(f, pair));
}

TEST_CASE("a newcomer that stays silent is reported after two leases") {
  LaneFixture f(2);
  StartTransfer(f);
  f.Place(0, 1, {}, {{2, f.NextViewId()}});
  f.Announce();
  f.Kill(2);
  f.Wait(milliseconds(3500));
  CHECK_FALSE(f.Heard<PeerSilent>(LaneFixture::kScheduler).empty());
}

}  // namespace
}  // namespace pando
