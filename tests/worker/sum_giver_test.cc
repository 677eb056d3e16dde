#include "worker/sum_giver.h"

#include "tests/worker/parts_fixture.h"

namespace pando {
namespace {

constexpr PeerId kTheRelay{kWorkers[1], Incarnation(101), 0};
constexpr PeerId kThird{kWorkers[2], Incarnation(102), 0};

// Gives shard 0 to another worker of its host; the gradients of step 0 were given at kMs.
struct Giver : PartsFixture {
  Giver() : giver(shared, requests, clock) {
    Enter();
    giver.EnterView(Group());
    Give(ShardId(0));
  }
  void Give(ShardId shard) {
    gradients.Add(shard, Gradient(shard.value(), 0));
    gradients.MarkSent(shard, 0, Delivery::kGiven);
    giver.OnGiven(kMs, *giver.GivesTo(shard));
  }
  // Gives both shards, each to its relay.
  void GiveInRack() {
    gradients.Clear();
    giver.EnterView(Group(kTheRelay, kThird));
    for (const uint32_t shard : {0, 1}) Give(ShardId(shard));
  }
  static SumGroup Group(const PeerId& first = kTheRelay, const PeerId& second = {}) {
    return {.workers = {kSelf.node, kTheRelay.node, kThird.node}, .relays = {first, second}};
  }
  bool Answer(Micros now, const std::vector<TreeNode>& nodes) {
    return giver.OnAnswer(now, kTheRelay, {{1, 1}, {{ShardId(0), Version(0), nodes}}});
  }
  bool IsGiven() const { return gradients.HasGiven(ShardId(0)); }
  // Returns when the first relay was given up.
  Micros WaitUntilGivenUp() {
    Micros now = kMs;
    while (!giver.has_given_up() && now < 10'000 * kMs) {
      now = giver.NextDeadline();
      giver.Tick(now);
    }
    return now;
  }
  StepClock clock;
  SumGiver giver;
};

TEST_CASE("shards that are summed on the host go to its relay (P6a)") {
  Giver f;
  CHECK(f.giver.Gives(ShardId(0)));
  CHECK_FALSE(f.giver.Gives(ShardId(1)));
  CHECK(f.giver.IsOurRelay(kTheRelay));
}

TEST_CASE("the relay itself gives nothing") {
  Giver f;
  f.giver.EnterView(Giver::Group(kSelf));
  CHECK_FALSE(f.giver.Gives(ShardId(0)));
  CHECK_FALSE(f.giver.IsOurRelay(kSelf));
}

TEST_CASE("a quiet relay is asked what it holds, and the rest is given again") {
  Giver f;
  CHECK(f.giver.NextDeadline() == kMs + SumGiver::kQuiet);
  const Micros asked = kMs + SumGiver::kQuiet;
  f.giver.Tick(asked);
  CHECK(f.Take<Question>().size() == 1);
  CHECK(f.Answer(asked, {kOurs}));
  CHECK(f.IsGiven());
  f.giver.Tick(asked + SumGiver::kQuiet);
  CHECK(f.Answer(asked + SumGiver::kQuiet, {}));
  CHECK_FALSE(f.IsGiven());
}

TEST_CASE("an answer that was not asked for is no word of what was lost") {
  Giver f;
  CHECK_FALSE(f.Answer(kMs, {}));
  CHECK(f.IsGiven());
}

TEST_CASE("a relay that answers no question is given up until it answers one") {
  Giver f;
  f.WaitUntilGivenUp();
  CHECK(f.giver.has_given_up());
  CHECK_FALSE(f.IsGiven());
  CHECK_FALSE(f.giver.Gives(ShardId(0)));
  f.giver.EnterView(Giver::Group());  // the same relay
  CHECK(f.giver.has_given_up());
  f.Answer(2000 * kMs, {});
  CHECK(f.giver.Gives(ShardId(0)));
}

TEST_CASE("relays of a rack are asked, answer and are given up each for its own shards") {
  Giver f;
  f.GiveInRack();
  f.giver.Tick(kMs + SumGiver::kQuiet);
  CHECK(f.Take<Question>().size() == 2);
  const uint64_t before = f.giver.changes();
  f.giver.OnParams(2000 * kMs, kThird);  // it is alive, so it is asked later
  f.giver.Tick(1000 * kMs);
  CHECK(f.giver.GivesTo(ShardId(0)) == nullptr);
  CHECK(*f.giver.GivesTo(ShardId(1)) == kThird);
  CHECK(f.giver.changes() != before);
  CHECK_FALSE(f.gradients.HasGiven(ShardId(0)));
  CHECK(f.gradients.HasGiven(ShardId(1)));
}

TEST_CASE("what a relay answers about another relay's shards does not count") {
  Giver f;
  f.GiveInRack();
  f.giver.Tick(2 * SumGiver::kQuiet);  // both are asked, of which the first one answers
  f.giver.OnAnswer(3 * SumGiver::kQuiet, kTheRelay, {{1, 1}, {{ShardId(1), Version(0), {}}}});
  CHECK(f.gradients.HasGiven(ShardId(1)));
}

TEST_CASE("a relay on another host has more time, as a question waits behind gradients") {
  Giver f;
  const Micros near = f.WaitUntilGivenUp();
  Giver far;
  View view = Giver::MakeView(2);
  for (NodeInfo& node : view.nodes) node.host = "h" + std::to_string(node.node.value());
  far.Enter(view);
  far.giver.EnterView(Giver::Group());
  far.giver.OnGiven(kMs, kTheRelay);
  CHECK(far.WaitUntilGivenUp() >= near + SumGiver::kPatienceFar);
}

TEST_CASE("a relay that owes nothing is not asked") {
  Giver f;
  f.Commit(1);
  f.giver.Tick(kMs + SumGiver::kQuiet);
  CHECK(f.Take<Question>().empty());
  CHECK(f.giver.NextDeadline() == kNever);
}

}  // namespace
}  // namespace pando
