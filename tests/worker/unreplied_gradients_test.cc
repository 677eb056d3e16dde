#include "worker/unreplied_gradients.h"

#include "tests/worker/parts_fixture.h"

namespace pando {
namespace {

constexpr ShardId kAnyShard{0};

const UnrepliedGradient& Only(const PartsFixture& f) {
  REQUIRE(f.gradients.shard(kAnyShard).size() == 1);
  return f.gradients.shard(kAnyShard).front();
}

TEST_CASE("a gradient is released when its version is committed (P11)") {
  PartsFixture f;
  f.AddGradients(0);
  f.AddGradients(1);
  f.gradients.OnCommitted(kAnyShard, Version(1));
  CHECK(Only(f).step == Step(1));
  CHECK(f.gradients.count() == 3);
  CHECK(f.gradients.AsksFor(kAnyShard, Version(2)));
  CHECK_FALSE(f.gradients.AsksFor(kAnyShard, Version(1)));
}

TEST_CASE("gradients of abandoned steps are dropped, earlier ones stay") {
  PartsFixture f;
  f.AddGradients(0);
  f.AddGradients(1);
  f.gradients.DropFrom(Step(1));
  CHECK(f.gradients.count() == 2);
  CHECK(Only(f).step == Step(0));
}

TEST_CASE("in a new view all gradients are unsent") {
  PartsFixture f;
  f.gradients.Add(kAnyShard, f.Gradient(0, 0));
  f.gradients.MarkSent(kAnyShard, 0, Delivery::kPushed);
  f.gradients.MarkHeld(kAnyShard, kOurs, Version(1));
  CHECK_FALSE(f.gradients.HasUnsent(kAnyShard, Step(0)));
  CHECK(f.gradients.HasPushed(kAnyShard));
  f.gradients.EnterView();
  CHECK(f.gradients.HasUnsent(kAnyShard, Step(0)));
  CHECK_FALSE(f.gradients.HasUnsent(kAnyShard, Step(1)));
  CHECK(Only(f).is_unsent());
  CHECK_FALSE(Only(f).is_held);
}

TEST_CASE("a lane's Pending marks the gradient that it names") {
  PartsFixture f;
  f.gradients.Add(kAnyShard, f.Gradient(0, 0));
  f.gradients.MarkHeld(kAnyShard, TreeNode(3), Version(1));
  f.gradients.MarkHeld(kAnyShard, kOurs, Version(2));
  CHECK_FALSE(Only(f).is_held);
  f.gradients.MarkHeld(kAnyShard, kOurs, Version(1));
  CHECK(Only(f).is_held);
}

TEST_CASE("what a lane that was asked does not hold was lost (P10)") {
  PartsFixture f;
  f.gradients.Add(kAnyShard, f.Gradient(0, 0));
  f.gradients.MarkSent(kAnyShard, 0, Delivery::kPushed);
  CHECK(f.gradients.JudgePushed({kAnyShard, Version(0), {TreeNode(1)}}));  // in a larger sum
  CHECK(Only(f).is_held);
  CHECK_FALSE(f.gradients.JudgePushed({kAnyShard, Version(0), {TreeNode(3)}}));
  CHECK(Only(f).is_unsent());
}

TEST_CASE("a promoted lane that is a version behind takes no gradient back that it holds") {
  PartsFixture f;
  f.gradients.Add(kAnyShard, f.Gradient(0, 1));
  f.gradients.MarkSent(kAnyShard, 0, Delivery::kPushed);
  f.gradients.MarkHeld(kAnyShard, kOurs, Version(2));
  CHECK_FALSE(f.gradients.JudgePushed({kAnyShard, Version(0), {}}));
  CHECK(Only(f).is_held);
}

TEST_CASE("what a relay does not hold is given again, and what it was given is taken back") {
  PartsFixture f;
  f.gradients.Add(kAnyShard, f.Gradient(0, 0));
  f.gradients.MarkSent(kAnyShard, 0, Delivery::kGiven);
  CHECK(f.gradients.HasGiven(kAnyShard));
  CHECK(f.gradients.GivenBytes({kAnyShard}) == Only(f).payload.size_bytes());
  f.gradients.JudgeGiven({kAnyShard, Version(0), {kOurs}});
  CHECK(Only(f).is_given());
  f.gradients.JudgeGiven({kAnyShard, Version(0), {}});
  CHECK(Only(f).is_unsent());
  f.gradients.MarkSent(kAnyShard, 0, Delivery::kGiven);
  f.gradients.TakeBackGiven({kAnyShard});
  CHECK(Only(f).is_unsent());
  CHECK(f.gradients.GivenBytes({kAnyShard}) == 0);
}

TEST_CASE("only unsent gradients are taken for a sum") {
  PartsFixture f;
  f.gradients.Add(kAnyShard, f.Gradient(0, 0, TreeNode(4)));
  f.gradients.Add(kAnyShard, f.Gradient(0, 0, TreeNode(5)));
  f.gradients.MarkSent(kAnyShard, 1, Delivery::kPushed);
  CHECK(f.gradients.Contains(kAnyShard, Step(0), TreeNode(8)));  // below node 4
  CHECK_FALSE(f.gradients.Contains(kAnyShard, Step(0), TreeNode(2)));
  CHECK_FALSE(f.gradients.TakeUnsent(kAnyShard, Step(0), TreeNode(5)).has_value());
  CHECK_FALSE(f.gradients.TakeUnsent(kAnyShard, Step(1), TreeNode(4)).has_value());
  CHECK(f.gradients.TakeUnsent(kAnyShard, Step(0), TreeNode(4)).has_value());
  f.gradients.DropUnsentBelow(kAnyShard, Step(0), TreeNode(2));
  CHECK(Only(f).node == TreeNode(5));
}

TEST_CASE("shards are named once whose gradients have become unsent") {
  PartsFixture f;
  f.gradients.Add(kAnyShard, f.Gradient(0, 0));
  CHECK(f.gradients.TakeUnsentShards() == std::vector<ShardId>{kAnyShard});
  CHECK(f.gradients.TakeUnsentShards().empty());
  f.gradients.MarkSent(kAnyShard, 0, Delivery::kPushed);
  f.gradients.JudgePushed({kAnyShard, Version(0), {}});  // the lane has lost it
  CHECK(f.gradients.TakeUnsentShards() == std::vector<ShardId>{kAnyShard});
  f.gradients.MarkSent(kAnyShard, 0, Delivery::kGiven);
  f.gradients.JudgeGiven({kAnyShard, Version(0), {}});
  CHECK(f.gradients.TakeUnsentShards() == std::vector<ShardId>{kAnyShard});
}

}  // namespace
}  // namespace pando
