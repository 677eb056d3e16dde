#include "server/shard_steps.h"

#include "server/early_messages.h"
#include "server/progress_report.h"
#include "server/scalar_blocks.h"
#include "tests/server/part_fixture.h"

namespace pando {
namespace {

// Server 1 leads shard 0.
struct StepsFixture : PartFixture {
  explicit StepsFixture(const std::vector<uint32_t>& backups = {}) {
    Place(0, 1, backups);
    replication.EnterView(now, Enter().promoted);
  }
  void GiveScalars() {
    scalars.OnScalars({Step(0), std::vector<StepScalars>(20, StepScalars{.lr = 0.5f})});
    steps.AdvanceAll(now);
  }
  void Push(uint64_t step, uint32_t id = 0) {
    steps.OnPush(now, From(kWorker),
                 {{{ShardId(id), Step(step), MicroBatchTree::kRoot, Gradient(id, 1.0f)}}});
  }
  MemorySnapshots port;
  Reports::Clock clock;
  EarlyMessages early{member};
  Replies replies{{member, replicas, plan}, early};
  ScalarBlocks scalars{member, replicas, plan};
  ProgressReport progress{member, replicas, plan};
  ShardSnapshots snapshots{{member, replicas, plan}, port, clock};
  Norms norms{{member, replicas, plan}, maker, kLease};
  Inquiry inquiry;
  Replication replication{{member, replicas, plan}, kLease, progress, clock, inquiry};
  ShardSteps steps{
      plan,
      {replicas, scalars, norms, replication, inquiry, snapshots, progress, replies, nullptr}};
};

TEST_CASE("without backups a version is committed with its last contribution") {
  StepsFixture f;
  f.GiveScalars();
  f.Push(0);
  CHECK(f.shard(0).committed() == Version(1));
  CHECK(f.steps.NextDeadline() == kNever);
  f.replies.Tick(f.now);
  CHECK(f.TakeSent<Params>().at(0).items.at(0).version == Version(1));
}

TEST_CASE("a complete step waits for its scalars") {
  StepsFixture f;
  f.Push(0);
  CHECK(f.shard(0).newest() == Version(0));
  f.GiveScalars();
  CHECK(f.shard(0).committed() == Version(1));
}

TEST_CASE("with backups the root goes out before the version is made, then it waits for them") {
  StepsFixture f({2});
  f.GiveScalars();
  f.Push(0);
  CHECK(f.shard(0).is_sealed());
  CHECK(f.steps.NextDeadline() == Micros(0));
  f.replication.SendRoots(f.now);
  CHECK(f.TakeSent<Root>().size() == 1);
  f.steps.Tick(f.now);
  CHECK(f.shard(0).newest() == Version(1));
  CHECK(f.shard(0).committed() == Version(0));
  f.replication.OnRootAck(f.now, f.From(PartFixture::Server(2)),
                          {{{ShardId(0), Version(1), f.shard(0).records().NewestHash()}}});
  f.steps.Tick(f.now);
  CHECK(f.shard(0).committed() == Version(1));
}

TEST_CASE("a contribution that is held already is answered as pending, a mistaken one not at all") {
  StepsFixture f;
  f.Push(0);
  f.Push(0);
  f.Push(7);  // no worker can be there yet
  f.replies.Tick(f.now);
  const auto replies = f.TakeSent<PushReply>();
  REQUIRE(replies.size() == 1);
  REQUIRE(replies[0].items.size() == 1);
  CHECK(replies[0].items[0].outcome == PushOutcome::kPending);
}

TEST_CASE("a contribution to a shard of another lane is answered NotPrimary") {
  StepsFixture f;
  f.Push(0, 1);
  f.replies.Tick(f.now);
  CHECK(f.TakeSent<PushReply>().at(0).items.at(0).outcome == PushOutcome::kNotPrimary);
}

}  // namespace
}  // namespace pando
