#include "server/replicas.h"
#include "server/replica.h"

#include "server/early_messages.h"
#include "tests/server/part_fixture.h"

namespace pando {
namespace {

using Shards = std::vector<ShardId>;

TEST_CASE("a replica in sync has its data at once where the generation begins from the seed") {
  PartFixture f;
  f.Place(0, 1);
  f.Place(1, 2, {1});
  f.Enter();
  CHECK(f.shard(0).has_data());
  CHECK(f.shard(1).has_data());
  CHECK(f.replicas.FindPrimary(ShardId(0)) == &f.shard(0));
  CHECK(f.replicas.FindPrimary(ShardId(1)) == nullptr);
  CHECK(f.replicas.Find(ShardId(1))->role() == ReplicaRole::kBackup);
  CHECK(f.replicas.Find(ShardId(1))->primary() == PartFixture::Server(2));
}

TEST_CASE("a replica in sync waits for a snapshot's data") {
  PartFixture f;
  f.view.restore = {0, Version(5)};
  f.Place(0, 1);
  f.Enter();
  CHECK_FALSE(f.shard(0).has_data());
  CHECK(f.replicas.is_restoring());
  CHECK(f.replicas.committed() == Version(5));
}

TEST_CASE("a view promotes, demotes and drops replicas") {
  PartFixture f;
  f.Place(0, 2, {1});
  f.Place(1, 1);
  f.Enter();
  f.Place(0, 1);
  f.Place(1, 2, {1});
  CHECK(f.Enter().promoted == Shards{ShardId(0)});
  CHECK(f.replicas.is_primary_of_any());
  f.Place(0, 2);
  const Replicas::Changes changes = f.Enter();
  CHECK(changes.promoted.empty());
  CHECK(changes.dropped == Shards{ShardId(0)});
  CHECK(f.replicas.Find(ShardId(0)) == nullptr);
  CHECK_FALSE(f.replicas.is_primary_of_any());
}

TEST_CASE("a new pair starts over, and the same pair goes on (P24)") {
  PartFixture f;
  f.Place(0, 2, {}, {1});
  CHECK(f.Enter().emptied == Shards{ShardId(0)});
  CHECK(f.replicas.Find(ShardId(0))->pair() == ViewId{1, 1});
  CHECK(f.Enter().emptied.empty());
  f.Place(0, 2, {}, {1});  // since the next view
  CHECK(f.Enter().emptied == Shards{ShardId(0)});
}

TEST_CASE("the lane has committed what all its primaries have, or everything without any") {
  PartFixture f;
  CHECK(f.replicas.committed() == Version(20));
  f.Place(0, 1);
  f.Place(1, 1);
  f.Enter();
  f.MakeVersion(0);
  CHECK(f.replicas.committed() == Version(0));
  CHECK(f.replicas.lowest_step() == Step(0));
  CHECK(f.replicas.highest_step() == Step(1));
  CHECK(f.replicas.VersionsDiffer([](const Shard& shard) { return shard.newest(); }));
  f.MakeVersion(1);
  CHECK(f.replicas.committed() == Version(1));
  CHECK_FALSE(f.replicas.VersionsDiffer([](const Shard& shard) { return shard.newest(); }));
}

TEST_CASE("messages of a newer view wait for it, and are gone once it has passed") {
  PartFixture f;
  EarlyMessages early(f.member);
  f.Enter();
  Envelope root = f.From(PartFixture::Server(2));
  root.message = Root{};
  CHECK_FALSE(early.IsEarly(root));
  root.view.number = 2;
  CHECK(early.IsEarly(root));
  Envelope ack = root;
  ack.message = RootAck{};
  CHECK_FALSE(early.IsEarly(ack));
  early.Keep(root);
  f.Enter();
  CHECK(early.Take().size() == 1);
  CHECK(early.Take().empty());
  early.Keep(root);
  f.Enter();
  CHECK(early.Take().empty());
}

TEST_CASE("early messages are bounded") {
  PartFixture f;
  EarlyMessages early(f.member);
  f.Enter();
  for (size_t i = 0; i < EarlyMessages::kEarlyMax + 1; ++i)
    early.Keep(f.From(PartFixture::Server(2)));
  CHECK(early.Take().size() == EarlyMessages::kEarlyMax);
}

}  // namespace
}  // namespace pando
