#include "worker/host_giver.h"

#include "tests/worker/parts_fixture.h"

namespace pando {
namespace {

constexpr PeerId kTheRelay{kWorkers[1], Incarnation(101), 0};

// Gives shard 0 to another worker of its host; the gradients of step 0 were given at kMs.
struct Giver : PartsFixture {
  Giver() : giver(shared, requests) {
    Enter();
    giver.EnterView(Group());
    gradients.Add(ShardId(0), Gradient(0, 0));
    gradients.MarkSent(ShardId(0), 0, Delivery::kGiven);
    giver.OnGiven(kMs);
  }
  static HostGroup Group() {
    return {.relay = kTheRelay, .workers = {kTheRelay.node, kSelf.node}, .sums = {true, false}};
  }
  bool Answer(Micros now, const std::vector<TreeNode>& nodes) {
    return giver.OnAnswer(now, {{1, 1}, {{ShardId(0), Version(0), nodes}}});
  }
  bool IsGiven() const { return gradients.HasGiven(ShardId(0)); }
  HostGiver giver;
};

TEST_CASE("shards that are summed on the host go to its relay (P6a)") {
  Giver f;
  CHECK(f.giver.Gives(ShardId(0)));
  CHECK_FALSE(f.giver.Gives(ShardId(1)));
  CHECK(f.giver.IsOurRelay(kTheRelay));
  CHECK(f.giver.GivesAny());
}

TEST_CASE("the relay itself gives nothing") {
  Giver f;
  HostGroup group = Giver::Group();
  group.relay = kSelf;
  f.giver.EnterView(group);
  CHECK_FALSE(f.giver.Gives(ShardId(0)));
  CHECK_FALSE(f.giver.IsOurRelay(kSelf));
}

TEST_CASE("a quiet relay is asked what it holds, and the rest is given again") {
  Giver f;
  CHECK(f.giver.NextDeadline() == kMs + HostGiver::kQuiet);
  const Micros asked = kMs + HostGiver::kQuiet;
  f.giver.Tick(asked);
  CHECK(f.Take<Question>().size() == 1);
  CHECK(f.Answer(asked, {kOurs}));
  CHECK(f.IsGiven());
  f.giver.Tick(asked + HostGiver::kQuiet);
  CHECK(f.Answer(asked + HostGiver::kQuiet, {}));
  CHECK_FALSE(f.IsGiven());
}

TEST_CASE("an answer that was not asked for is no word of what was lost") {
  Giver f;
  CHECK_FALSE(f.Answer(kMs, {}));
  CHECK(f.IsGiven());
}

TEST_CASE("a relay that answers no question is given up until it answers one") {
  Giver f;
  for (Micros now = kMs; !f.giver.has_given_up() && now < 1000 * kMs; now = f.giver.NextDeadline())
    f.giver.Tick(now);
  CHECK(f.giver.has_given_up());
  CHECK_FALSE(f.IsGiven());
  CHECK_FALSE(f.giver.Gives(ShardId(0)));
  f.giver.EnterView(Giver::Group());  // the same relay
  CHECK(f.giver.has_given_up());
  f.Answer(2000 * kMs, {});
  CHECK(f.giver.Gives(ShardId(0)));
}

TEST_CASE("a relay that owes nothing is not asked") {
  Giver f;
  f.Commit(1);
  f.giver.Tick(kMs + HostGiver::kQuiet);
  CHECK(f.Take<Question>().empty());
  CHECK(f.giver.NextDeadline() == kNever);
}

}  // namespace
}  // namespace pando
