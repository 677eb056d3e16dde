// Both sides of replication, part by part: roots, images, repeats and silence.
#include "server/following.h"
#include "server/lane_limits.h"
#include "server/progress_report.h"
#include "server/replication.h"
#include "tests/server/part_fixture.h"

namespace pando {
namespace {

constexpr Micros kBackupLease = std::chrono::seconds(1);

// ---- the clock ---------------------------------------------------------------------------------

constexpr PeerId kBackup{NodeId(2), Incarnation(1002), 0};

TEST_CASE("an answer that is owed is repeated after longer and longer times") {
  BackupClock clock(kBackupLease);
  BackupClock::Debt debt;
  clock.Expect(Micros(0), debt);
  CHECK(clock.NextDeadline() == kRootRetryFirst);
  Micros interval = kRootRetryFirst;
  for (int i = 0; i < 5; ++i) {
    const Micros now = clock.NextDeadline();
    REQUIRE(clock.IsDue(now));
    clock.StartRound();
    CHECK(clock.IsRepeatDue(now, kBackup, /*sends_roots=*/true, debt));
    interval = std::min(2 * interval, kRootRetryMax);
    CHECK(clock.NextDeadline() == now + interval);
  }
}

TEST_CASE("a root is not repeated while other roots are being acknowledged") {
  BackupClock clock(kBackupLease);
  BackupClock::Debt debt;
  clock.Expect(Micros(0), debt);
  clock.OnRootAck(kBackup, kRootRetryFirst / 2);
  clock.StartRound();
  CHECK_FALSE(clock.IsRepeatDue(kRootRetryFirst, kBackup, /*sends_roots=*/true, debt));
  CHECK(clock.NextDeadline() == kRootRetryFirst / 2 + kRootRetryFirst);
}

TEST_CASE("a backup is silent when it has not answered for two leases") {
  BackupClock clock(kBackupLease);
  BackupClock::Debt debt;
  clock.Expect(Micros(0), debt);
  CHECK_FALSE(clock.SilenceOver(2 * kBackupLease - Micros(1), kBackup, debt));
  CHECK(clock.SilenceOver(2 * kBackupLease, kBackup, debt) == 2 * kBackupLease);
  clock.OnAnswer(kBackup, kBackupLease);
  CHECK_FALSE(clock.SilenceOver(2 * kBackupLease, kBackup, debt));
  CHECK(clock.SilenceOver(3 * kBackupLease, kBackup, debt) == 2 * kBackupLease);
}

// ---- the primary -------------------------------------------------------------------------------

struct Primary : PartFixture {
  void EnterAll() { replication.EnterView(now, Enter().promoted); }
  // Seals the next step of shard 0, sends its root and makes the version.
  void SealAndMake() {
    FillTree(0);
    shard(0).Seal({.lr = 0.5f});
    replication.GatherSealedRoot(now, shard(0));
    replication.SendRoots(now);
    shard(0).MakeSealed();
    replication.NoteMade(ShardId(0));
  }
  void Acknowledge(uint32_t server, uint64_t version, uint64_t hash) {
    replication.OnRootAck(now, From(Server(server)), {{{ShardId(0), Version(version), hash}}});
  }
  // Acknowledges chunks as the newcomer would, until the image is over.
  void TakeImage(uint32_t server) {
    for (auto chunks = TakeSent<Chunk>(); !chunks.empty(); chunks = TakeSent<Chunk>()) {
      const Chunk& last = chunks.back();
      replication.OnChunkAck(now, From(Server(server)),
                             {last.shard, last.pair, last.versions.back(),
                              last.offset + last.payload.floats().size()});
    }
  }
  Reports::Clock clock;
  ProgressReport progress{member, replicas, plan};
  Inquiry inquiry;
  Replication replication{{member, replicas, plan}, kBackupLease, progress, clock, inquiry};
};

TEST_CASE("a version may be committed once every backup in sync has the same") {
  Primary f;
  f.Place(0, 1, {2, 3});
  f.EnterAll();
  f.SealAndMake();
  CHECK(f.TakeSent<Root>().size() == 2);
  CHECK_FALSE(f.replication.MayCommit(f.shard(0)));
  const uint64_t hash = f.shard(0).records().NewestHash();
  f.Acknowledge(2, 1, hash);
  CHECK_FALSE(f.replication.MayCommit(f.shard(0)));
  f.Acknowledge(3, 1, hash);
  CHECK(f.replication.MayCommit(f.shard(0)));
  CHECK(f.replication.TakeCommittable().contains(ShardId(0)));
  CHECK(f.replication.TakeCommittable().empty());
}

TEST_CASE("a backup that made other bits is reported, and never counts (P8)") {
  Primary f;
  f.Place(0, 1, {2});
  f.EnterAll();
  f.SealAndMake();
  f.Acknowledge(2, 1, f.shard(0).records().NewestHash() + 1);
  CHECK_FALSE(f.replication.MayCommit(f.shard(0)));
  CHECK(f.clock.IsDue(f.now));
  std::vector<Message> reports;
  CHECK(f.replication.AddReports(&reports));
  REQUIRE(reports.size() == 1);
  CHECK(std::get<Divergence>(reports[0]).backup == PartFixture::Server(2));
}

TEST_CASE(
    "a version that another replica contradicts needs more that agree, also when both are gone") {
  Primary f;
  f.Place(0, 1, {2, 3});
  f.EnterAll();
  f.SealAndMake();
  const uint64_t hash = f.shard(0).records().NewestHash();
  f.Acknowledge(2, 1, hash + 1);
  SUBCASE("nothing agrees") {}
  SUBCASE("another one differs, too") { f.Acknowledge(3, 1, hash + 2); }
  f.Place(0, 1);
  f.EnterAll();
  CHECK_FALSE(f.replication.MayCommit(f.shard(0)));
  std::vector<Message> reports;
  CHECK(f.replication.AddReports(&reports));
}

TEST_CASE("a version that most replicas have is committed once the other one is gone") {
  Primary f;
  f.Place(0, 1, {2, 3});
  f.EnterAll();
  f.SealAndMake();
  const uint64_t hash = f.shard(0).records().NewestHash();
  f.Acknowledge(2, 1, hash + 1);
  f.Acknowledge(3, 1, hash);
  CHECK_FALSE(f.replication.MayCommit(f.shard(0)));
  f.Place(0, 1);  // server 2 is outvoted, and server 3 dies
  f.EnterAll();
  CHECK(f.replication.MayCommit(f.shard(0)));
}

TEST_CASE("a newcomer whose image has other bits is reported, and never in sync (P20)") {
  Primary f;
  f.Place(0, 1, {2});
  f.EnterAll();
  f.SealAndMake();
  const uint64_t hash = f.shard(0).records().NewestHash();
  f.Acknowledge(2, 1, hash);
  f.shard(0).records().Commit();
  f.Place(0, 1, {2}, {3});
  f.EnterAll();
  const Chunk last = f.TakeSent<Chunk>().back();
  const auto acknowledge = [&](uint64_t copied) {
    f.replication.OnChunkAck(
        f.now, f.From(PartFixture::Server(3)),
        {last.shard, last.pair, last.versions.back(), last.image_floats, copied});
    std::vector<Message> reports;
    f.replication.AddReports(&reports);
    return reports;
  };
  CHECK(std::get<Divergence>(acknowledge(hash + 1).at(0)).backup == PartFixture::Server(3));
  CHECK(std::holds_alternative<Synced>(acknowledge(hash).at(0)));
}

TEST_CASE("an uncommitted version's root goes out again in a new view (P22)") {
  Primary f;
  f.Place(0, 1, {2});
  f.EnterAll();
  f.SealAndMake();
  f.Acknowledge(2, 1, f.shard(0).records().NewestHash());
  f.EnterAll();  // before the commit: the acknowledgement was of the old view (P13)
  CHECK_FALSE(f.replication.MayCommit(f.shard(0)));
  f.replication.SendRoots(f.now);
  CHECK(f.TakeSent<Root>().size() == 1);
}

TEST_CASE("unanswered roots are repeated, and a silent backup is reported (P10, P23)") {
  Primary f;
  f.Place(0, 1, {2});
  f.EnterAll();
  f.SealAndMake();
  f.TakeSent<Root>();
  f.now += kRootRetryFirst;
  f.replication.Tick(f.now);
  f.replication.SendRoots(f.now);
  CHECK(f.TakeSent<Root>().size() == 1);
  f.now += 2 * kBackupLease;
  f.replication.Tick(f.now);
  const auto silent = f.TakeSent<PeerSilent>();
  REQUIRE(silent.size() == 1);
  CHECK(silent[0].peer == PartFixture::Server(2));
}

TEST_CASE("a newcomer is reported in sync when it has the image and every root since (P24)") {
  Primary f;
  f.Place(0, 1, {}, {2});
  Root root;
  f.replication.EnterView(f.now, f.Enter().promoted);
  CHECK(f.replication.HasBackups(ShardId(0)));
  std::vector<Message> reports;
  CHECK_FALSE(f.replication.AddReports(&reports));
  f.TakeImage(2);
  CHECK(f.replication.AddReports(&reports));
  REQUIRE(reports.size() == 1);
  CHECK(std::get<Synced>(reports[0]).items.at(0).newcomer == PartFixture::Server(2));
  f.SealAndMake();  // from here on its acknowledgements are required
  CHECK_FALSE(f.replication.MayCommit(f.shard(0)));
}

TEST_CASE("two versions may be made while an image is under way, and no more (I6)") {
  Primary f;
  f.Place(0, 1, {}, {2});
  f.EnterAll();
  f.SealAndMake();
  CHECK(f.replication.MayCommit(f.shard(0)));
  f.shard(0).records().Commit();
  f.SealAndMake();
  CHECK_FALSE(f.replication.MayCommit(f.shard(0)));
}

// ---- the backup --------------------------------------------------------------------------------

struct Backup : PartFixture {
  void EnterAll() { following.EnterView(Enter()); }
  Root RootFor(uint64_t step, float value) {
    return {{{ShardId(0), Step(step), {.lr = 0.5f}, Gradient(0, value)}}, Step(0)};
  }
  std::vector<RootAck> TakeAcks() {
    following.Tick();
    return TakeSent<RootAck>();
  }
  MemorySnapshots port;
  Reports::Clock clock;
  ShardSnapshots snapshots{{member, replicas, plan}, port, clock};
  ProgressReport progress{member, replicas, plan};
  Following following{{member, replicas, plan}, snapshots, progress, nullptr};
};

TEST_CASE("a backup makes the version of its primary's root, and acknowledges repeats") {
  Backup f;
  f.Place(0, 2, {1});
  f.EnterAll();
  for (int i = 0; i < 2; ++i) {
    f.following.OnRoot(f.now, f.From(PartFixture::Server(2)), f.RootFor(0, 1.0f));
    const auto acks = f.TakeAcks();
    REQUIRE(acks.size() == 1);
    CHECK(acks[0].items.at(0).version == Version(1));
    CHECK(acks[0].items.at(0).hash == f.shard(0).records().NewestHash());
  }
  CHECK(f.shard(0).newest() == Version(1));
}

TEST_CASE("a backup reports its hash of a version that is due, until the scheduler knows") {
  Backup f;
  f.Place(0, 2, {1});
  f.EnterAll();
  f.snapshots.OnSnapshotAt(f.now, f.From(PartFixture::kScheduler), {Version(2)});
  std::vector<Message> reports;
  for (uint64_t step : {0, 1}) {
    f.following.OnRoot(f.now, f.From(PartFixture::Server(2)), f.RootFor(step, 1.0f));
    CHECK(f.snapshots.AddReports(&reports) == (step == 1));
  }
  REQUIRE(reports.size() == 1);
  const SnapshotStoredItem& item = std::get<SnapshotStored>(reports[0]).items.at(0);
  CHECK(item.version == Version(2));
  CHECK(item.hash == f.shard(0).records().NewestHash());
  CHECK((item.file.empty() && item.failure.empty()));
  f.snapshots.OnSnapshotAck({{{ShardId(0), Version(2)}}});
  CHECK_FALSE(f.snapshots.AddReports(&reports));
}

TEST_CASE("roots of other peers and of other views do not count (P13)") {
  Backup f;
  f.Place(0, 2, {1});
  f.EnterAll();
  f.following.OnRoot(f.now, f.From(PartFixture::Server(3)), f.RootFor(0, 1.0f));
  Envelope old = f.From(PartFixture::Server(2));
  old.view.number -= 1;
  f.following.OnRoot(f.now, old, f.RootFor(0, 1.0f));
  CHECK(f.TakeAcks().empty());
  CHECK(f.shard(0).newest() == Version(0));
}

TEST_CASE("a backup that is still loading answers that it lives") {
  Backup f;
  f.view.restore = {0, Version(4)};
  f.Place(0, 2, {1});
  f.snapshots.EnterView(f.now, f.Enter());
  f.following.OnRoot(f.now, f.From(PartFixture::Server(2)), f.RootFor(4, 1.0f));
  const auto acks = f.TakeAcks();
  REQUIRE(acks.size() == 1);
  CHECK(acks[0].items.empty());
}

TEST_CASE("an image is installed when it is whole, for its own pair only (P24)") {
  Backup f;
  f.Place(0, 2, {}, {1});
  f.EnterAll();
  PartFixture source;
  source.Place(0, 1);
  source.Enter();
  source.MakeVersion(0);
  OutgoingTransfer stale(ShardId(0), {1, 9}, source.shard(0).records().ShareKept());
  f.following.OnChunk(f.From(PartFixture::Server(2)), *stale.Next());
  CHECK(f.TakeSent<ChunkAck>().empty());
  OutgoingTransfer image(ShardId(0), {1, 1}, source.shard(0).records().ShareKept());
  while (std::optional<Chunk> chunk = image.Next())
    f.following.OnChunk(f.From(PartFixture::Server(2)), *chunk);
  CHECK_FALSE(f.TakeSent<ChunkAck>().empty());
  CHECK(f.shard(0).newest() == Version(1));
  CHECK(f.shard(0).records().NewestHash() == source.shard(0).records().NewestHash());
}

}  // namespace
}  // namespace pando
