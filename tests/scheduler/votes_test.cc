#include "scheduler/members/votes.h"

#include <doctest/doctest.h>

#include "tests/scheduler/parts_fixture.h"

namespace pando {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr ShardId kShard{0};
constexpr Version kVersion{7};

// Server 10 is the primary of all shards; 11 and 12 are backups in sync.
struct VotesFixture : PartsFixture {
  explicit VotesFixture(uint32_t backup_count = 2) {
    StartTraining();
    backups.push_back(parts.members.Find(Incarnation(11))->peer);
    if (backup_count == 2) backups.push_back(Add(12, Role::kServer, "elsewhere"));
    View view = parts.views.view();
    view.id = parts.views.NextId();
    view.nodes = parts.members.NodeInfos(SumUse::kOff, {});
    for (ShardPlacement& placement : view.shards) placement.in_sync_backups = backups;
    parts.views.Publish(std::move(view));
  }
  void Report(const PeerId& backup) {
    parts.votes.OnDivergence(now, server, {kShard, kVersion, backup, 1, 2});
  }
  void Answer(const PeerId& replica, uint64_t made) { Answer(replica, made, made); }
  void Answer(const PeerId& replica, uint64_t made, uint64_t hash_now) {
    parts.votes.OnRecordHashes(now, replica, {kShard, kVersion, made, hash_now});
  }
  bool IsMember(uint64_t who) const { return parts.members.Find(Incarnation(who)) != nullptr; }
  std::vector<PeerId> backups;
};

TEST_CASE("two replicas cannot vote: the run goes back, and a fourth time ends it (P8)") {
  VotesFixture f(1);
  f.parts.votes.OnDivergence(f.now, f.backups[0], {kShard, kVersion, f.backups[0], 1, 2});
  CHECK_FALSE(f.parts.phase.is_rolling_back());  // only the primary's report counts
  for (int i = 0; i < 3; ++i) {
    f.Report(f.backups[0]);
    REQUIRE(f.parts.phase.is_rolling_back());
    f.parts.phase.RollBack();
  }
  f.Report(f.backups[0]);
  CHECK(f.parts.phase.stop().reason == StopReason::kFailed);
}

TEST_CASE("each of three replicas is asked, until it answers, and the odd one is outvoted (P8)") {
  VotesFixture f;
  f.Report(f.backups[0]);
  f.parts.outbox.Flush();
  for (const PeerId& replica : {f.server, f.backups[0], f.backups[1]}) {
    const HashWanted* wanted = f.recorder.LastTo<HashWanted>(replica.incarnation);
    REQUIRE(wanted != nullptr);
    CHECK(wanted->version == kVersion);
  }
  SUBCASE("a backup") {
    f.Answer(f.server, 1);
    f.Answer(f.backups[1], 1);
    CHECK(f.IsMember(11));  // it has not said anything itself
    f.Answer(f.backups[0], 2);
    CHECK_FALSE(f.IsMember(11));
    CHECK(f.IsMember(10));
  }
  SUBCASE("the primary") {
    f.Answer(f.server, 1);
    f.Answer(f.backups[1], 2);
    f.Answer(f.backups[0], 2);
    CHECK_FALSE(f.IsMember(10));
    CHECK(f.IsMember(11));
  }
  CHECK(f.IsMember(12));
  CHECK(f.recorder.HasEvent("outvoted"));
  CHECK(f.parts.phase.is_rolling_back() == !f.IsMember(10));  // workers may have read its bits
  CHECK(f.parts.votes.distrusted_machines() == std::vector<std::string>{"h"});
  CHECK(f.parts.votes.Distrusted() ==
        std::set<NodeId>{f.parts.members.Find(Incarnation(f.IsMember(10) ? 10 : 11))->peer.node});
}

TEST_CASE("a replica whose memory has changed since it made the version is the wrong one (P8)") {
  VotesFixture f;
  f.Report(f.backups[0]);
  f.Answer(f.server, 1, 9);
  f.Answer(f.backups[0], 9);  // it has a copy of the changed memory
  f.Answer(f.backups[1], 1);
  CHECK_FALSE(f.IsMember(10));
  CHECK(f.IsMember(11));
  CHECK(f.IsMember(12));
}

TEST_CASE("without a majority, or without answers, the run goes back") {
  VotesFixture f;
  f.Report(f.backups[0]);
  SUBCASE("three hashes") {
    f.Answer(f.server, 1);
    f.Answer(f.backups[0], 2);
    f.Answer(f.backups[1], 3);
  }
  SUBCASE("a replica is silent") {
    f.Answer(f.server, 1);
    f.Answer(f.backups[0], 2);
    f.parts.votes.Tick(f.now + milliseconds(1999));
    CHECK_FALSE(f.parts.phase.is_rolling_back());
    f.parts.votes.Tick(f.now + seconds(2));
  }
  SUBCASE("a replica has died") {
    f.parts.votes.Forget(*f.parts.members.Find(Incarnation(12)));
    f.Answer(f.server, 1);
    f.Answer(f.backups[0], 2);
  }
  CHECK(f.parts.phase.is_rolling_back());
  CHECK_FALSE(f.recorder.HasEvent("outvoted"));
}

TEST_CASE("a damaged acknowledgement of equal records has no consequence") {
  VotesFixture f;
  f.Report(f.backups[0]);
  for (const PeerId& replica : {f.server, f.backups[0], f.backups[1]}) f.Answer(replica, 1);
  CHECK(f.IsMember(11));
  CHECK_FALSE(f.parts.phase.is_rolling_back());
}

TEST_CASE("answers of others, and about other versions, do not count") {
  VotesFixture f;
  f.Answer(f.server, 1);  // nothing was asked
  f.Report(f.backups[0]);
  f.Answer(f.worker, 1);
  f.parts.votes.OnRecordHashes(f.now, f.server, {kShard, Version(6), 1, 1});
  f.Answer(f.backups[0], 2);
  f.Answer(f.backups[1], 2);
  CHECK(f.IsMember(10));
}

TEST_CASE(
    "a late report about an outvoted replica changes nothing, and one about a dead one does") {
  VotesFixture f;
  f.Report(f.backups[0]);
  f.Answer(f.server, 1);
  f.Answer(f.backups[0], 2);
  f.Answer(f.backups[1], 1);
  f.Report(f.backups[0]);
  CHECK_FALSE(f.parts.phase.is_rolling_back());
  f.parts.membership.OnDeath(f.now, f.backups[1].node, "kill", "exit");
  f.Report(f.backups[1]);
  View view = f.parts.views.view();
  view.id = f.parts.views.NextId();
  for (ShardPlacement& placement : view.shards) placement.in_sync_backups.clear();
  f.parts.views.Publish(std::move(view));
  f.parts.votes.Tick(f.now + seconds(2));
  CHECK(f.parts.phase.is_rolling_back());
}

TEST_CASE("if all servers are on machines that are not trusted, they are used all the same") {
  VotesFixture f(1);
  f.Add(12, Role::kServer);  // of the same machine
  f.backups.push_back(f.parts.members.Find(Incarnation(12))->peer);
  View view = f.parts.views.view();
  view.id = f.parts.views.NextId();
  for (ShardPlacement& placement : view.shards) placement.in_sync_backups = f.backups;
  f.parts.views.Publish(std::move(view));
  f.Report(f.backups[0]);
  f.Answer(f.server, 1);
  f.Answer(f.backups[0], 2);
  f.Answer(f.backups[1], 1);
  CHECK(f.parts.votes.distrusted_machines() == std::vector<std::string>{"h"});
  CHECK(f.parts.votes.Distrusted().empty());
}

}  // namespace
}  // namespace pando
