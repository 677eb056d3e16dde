#include "worker/push_sender.h"

#include "proto/item_messages.h"
#include "tests/worker/parts_fixture.h"

namespace pando {
namespace {

// Steps 0 and 1 are in the works.
struct Sender : PartsFixture {
  explicit Sender(std::optional<size_t> window_bytes = {}, const Job& job = SmallJob())
      : PartsFixture(job),
        giver(shared, requests, clock),
        relay(shared, {}),
        sender(shared,
               {.steps = steps,
                .clock = clock,
                .giver = giver,
                .relay = relay,
                .requests = requests,
                .lanes = lanes},
               window_bytes) {
    Start();
    sender.EnterView();
  }
  StepClock clock;
  SumGiver giver;
  SumRelay relay;
  PushSender sender;
};

TEST_CASE("gradients go to their lanes once, first to the one where this worker begins") {
  Sender f;
  f.AddGradients(0);
  f.sender.Tick(kMs);
  const auto pushes = f.Take<Push>();
  REQUIRE(pushes.size() == 2);
  const bool begins_at_b = PlaceAmong(2, kSelf.node) == 1;
  CHECK(pushes[0].first == (begins_at_b ? kLaneB : kLaneA));
  CHECK(pushes[1].first == (begins_at_b ? kLaneA : kLaneB));
  CHECK(f.gradients.shard(ShardId(0)).front().is_pushed());
  CHECK(f.requests.asked_at(ShardId(0)) == kMs);
  f.sender.Tick(2 * kMs);
  CHECK(f.Take<Push>().empty());
}

TEST_CASE("nothing of step t + 1 is pushed before version t + 1 is committed everywhere (P4)") {
  Sender f;
  f.AddGradients(1);
  f.versions.Learn(ShardId(0), Version(1));
  f.sender.Tick(kMs);
  CHECK(f.Take<Push>().empty());
  f.versions.Learn(ShardId(1), Version(1));
  f.sender.Tick(2 * kMs);
  CHECK(f.Take<Push>().size() == 2);
}

std::vector<Step> PushedSteps(const std::vector<std::pair<PeerId, Push>>& pushes) {
  std::vector<Step> steps;
  for (const auto& [lane, push] : pushes) {
    for (const PushItem& item : push.items) steps.push_back(item.step);
  }
  return steps;
}

TEST_CASE("with staleness the next step leaves when the one before is computed and sent (P4, P6)") {
  Sender f({}, Sender::StaleJob());
  f.AddGradients(0);
  f.AddGradients(1);
  f.sender.Tick(kMs);
  CHECK(PushedSteps(f.Take<Push>()) == std::vector<Step>(2, Step(0)));
  f.steps.OnStepComputed(kMs, {Step(0)});
  f.AddGradients(2);
  f.sender.Tick(2 * kMs);
  CHECK(PushedSteps(f.Take<Push>()) == std::vector<Step>(2, Step(1)));
  f.steps.OnStepComputed(kMs, {Step(1)});
  f.sender.Tick(3 * kMs);
  CHECK(f.Take<Push>().empty());  // step 2 reads version 1, which is not committed
  f.gradients.Add(ShardId(0), f.Gradient(0, 0, TreeNode(12)));  // help for step 0
  f.sender.Tick(4 * kMs);
  CHECK(PushedSteps(f.Take<Push>()) == std::vector<Step>(1, Step(0)));
  f.Commit(1);
  f.sender.Tick(5 * kMs);
  CHECK(PushedSteps(f.Take<Push>()) == std::vector<Step>(2, Step(2)));
}

TEST_CASE("bytes that leave while backward goes on are counted apart") {
  Sender f;
  f.AddGradients(0);
  f.sender.Tick(kMs);
  const uint64_t early = f.sender.bytes().early;
  CHECK(early == f.sender.bytes().pushed);
  CHECK(early > 0);
  f.steps.OnStepComputed(kMs, {Step(0)});
  f.Commit(1);
  f.steps.OnStepComputed(kMs, {Step(1)});
  f.AddGradients(1);
  f.sender.Tick(2 * kMs);
  CHECK(f.sender.bytes().early == early);
  CHECK(f.sender.bytes().pushed == 2 * early);
}

TEST_CASE("gradients of shards that the host sums go to its relay") {
  Sender f;
  const PeerId relay{kWorkers[1], Incarnation(101), 0};
  f.giver.EnterView({.workers = {relay.node, kSelf.node}, .relays = {relay, PeerId{}}});
  f.sender.EnterView();
  f.AddGradients(0);
  f.sender.Tick(kMs);
  const auto pushes = f.Take<Push>();
  REQUIRE(pushes.size() == 2);
  CHECK(pushes[0].first != pushes[1].first);
  for (const auto& [receiver, push] : pushes) {
    const ShardId shard = receiver == relay ? ShardId(0) : ShardId(1);
    CHECK(push.items.at(0).shard == shard);
    CHECK((receiver == relay || receiver == kLaneB));
  }
  CHECK(f.gradients.shard(ShardId(0)).front().is_given());
  CHECK(f.sender.bytes().given == f.gradients.GivenBytes({ShardId(0), ShardId(1)}));
  CHECK(f.giver.NextDeadline() == kMs + SumGiver::kQuiet);
}

}  // namespace
}  // namespace pando
