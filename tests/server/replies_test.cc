#include "server/replies.h"
#include "server/early_messages.h"

#include "tests/server/part_fixture.h"

namespace pando {
namespace {

// Server 1 leads shard 0, server 2 shard 1.
struct RepliesFixture : PartFixture {
  RepliesFixture() {
    Place(0, 1);
    Place(1, 2);
    Enter();
  }
  void Pull(uint32_t shard, uint64_t version) {
    replies.OnPull(From(kWorker), {{{ShardId(shard), Version(version)}}});
  }
  EarlyMessages early{member};
  Replies replies{{member, replicas, plan}, early};
};

TEST_CASE("a committed version is shown, once for equal pulls") {
  RepliesFixture f;
  f.Pull(0, 0);
  f.Pull(0, 0);
  f.replies.Tick(f.now);
  const auto params = f.TakeSent<Params>();
  REQUIRE(params.size() == 1);
  REQUIRE(params[0].items.size() == 1);
  CHECK(params[0].items[0].version == Version(0));
}

TEST_CASE("a pull of the next version is pending, and answered once it is committed") {
  RepliesFixture f;
  f.Pull(0, 1);
  f.replies.Tick(f.now);
  const auto replies = f.TakeSent<PushReply>();
  REQUIRE(replies.size() == 1);
  CHECK(replies[0].items[0].outcome == PushOutcome::kPending);
  f.MakeVersion(0);
  f.replies.ReplyToWaiting(f.shard(0));
  f.replies.ReplyToWaiting(f.shard(0));
  f.replies.Tick(f.now);
  const auto params = f.TakeSent<Params>();
  REQUIRE(params.size() == 1);
  CHECK(params[0].items.size() == 1);
}

TEST_CASE("a version that is gone is answered with the committed one") {
  RepliesFixture f;
  for (int i = 0; i < 3; ++i) f.MakeVersion(0);
  f.Pull(0, 0);
  f.replies.Tick(f.now);
  const auto replies = f.TakeSent<PushReply>();
  REQUIRE(replies.size() == 1);
  CHECK(replies[0].items[0].outcome == PushOutcome::kBehind);
  CHECK(replies[0].items[0].current == Version(3));
}

TEST_CASE("a shard of another lane: NotPrimary, or kept where the asker's view is newer") {
  RepliesFixture f;
  f.Pull(1, 0);
  f.replies.Tick(f.now);
  const auto replies = f.TakeSent<PushReply>();
  REQUIRE(replies.size() == 1);
  CHECK(replies[0].items[0].outcome == PushOutcome::kNotPrimary);
  Envelope newer = f.From(PartFixture::kWorker);
  newer.view.number += 1;
  f.replies.OnPull(newer, {{{ShardId(1), Version(0)}}});
  f.replies.Tick(f.now);
  CHECK(f.sent.empty());
  f.Enter();
  CHECK(f.early.Take().size() == 1);
}

TEST_CASE("workers do not wait for a shard that another lane leads now") {
  RepliesFixture f;
  f.Pull(0, 1);
  f.replies.Tick(f.now);
  f.Place(0, 2, {1});
  f.Enter();
  f.replies.EnterView();
  f.Place(0, 1);
  f.Enter();
  f.MakeVersion(0);
  f.replies.ReplyToWaiting(f.shard(0));
  f.replies.Tick(f.now);
  CHECK(f.TakeSent<Params>().empty());
}

TEST_CASE("only a question of our view is answered") {
  RepliesFixture f;
  f.replies.OnQuestion(f.now, f.From(PartFixture::kWorker), {{1, 2}});
  CHECK(f.TakeSent<Answer>().empty());
  f.replies.OnQuestion(f.now, f.From(PartFixture::kWorker), {{1, 1}});
  const auto answers = f.TakeSent<Answer>();
  REQUIRE(answers.size() == 1);
  REQUIRE(answers[0].items.size() == 1);
  CHECK(answers[0].items[0].shard == ShardId(0));
}

}  // namespace
}  // namespace pando
