#include "worker/sum_relay.h"

#include "tests/worker/parts_fixture.h"

namespace pando {
namespace {

constexpr ShardId kShard{0};

struct Relay : PartsFixture {
  Relay() : PartsFixture(HostJob()), relay(shared, {}) {
    Enter();
    relay.EnterView(
        {.workers = {kWorkers[0], kWorkers[1], kWorkers[2]}, .relays = {kSelf, kGiver}});
  }
  static Job HostJob() {
    Job job = SmallJob();
    job.host_sum = SumUse::kAlways;
    return job;
  }
  bool Give(const PeerId& giver, uint64_t step, TreeNode node, float value) {
    return relay.OnPush(giver, {{{kShard, Step(step), node, Payload(0, value)}}});
  }
  const UnrepliedGradient& Only() const {
    REQUIRE(gradients.shard(kShard).size() == 1);
    return gradients.shard(kShard).front();
  }
  Micros LeavesAt(Micros now, TreeNode node) {
    return relay.LeavesAt(now, kShard, Gradient(0, 1, node), 10 * kMs);
  }
  SumRelay relay;
};

TEST_CASE("siblings become one sum, left + right, up to the root (I5)") {
  Relay f;
  f.Give(kOther, 0, kOfOther, 2);
  f.relay.Add(kShard, f.Gradient(0, 0, kOurs, 4));
  CHECK(f.gradients.shard(kShard).size() == 2);
  f.Give(kGiver, 0, kOfGiver, 1);
  CHECK(f.Only().node == MicroBatchTree::kRoot);
  CHECK(f.Only().payload.floats().front() == 7);
}

TEST_CASE("a gradient that a sum contains already is dropped (I1)") {
  Relay f;
  f.Give(kOther, 0, TreeNode(3), 5);
  f.Give(kGiver, 0, kOfGiver, 1);
  f.Give(kGiver, 0, kOfGiver, 1);
  CHECK(f.Only().payload.floats().front() == 5);
}

TEST_CASE("a push proves that the version it was made with is committed everywhere (P4)") {
  Relay f;
  f.Give(kGiver, 3, kOfGiver, 1);
  CHECK(f.versions.everywhere() == Version(3));
}

TEST_CASE("a giver learns what the relay holds of its gradients") {
  Relay f;
  f.Give(kGiver, 0, kOfGiver, 1);
  f.Give(kOther, 0, kOfOther, 1);
  f.relay.OnQuestion(kGiver, {{1, 1}});
  const auto answers = f.Take<Answer>();
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].first == kGiver);
  CHECK(answers[0].second.items.size() == 1);  // only the shard that it sums
  CHECK(answers[0].second.items[0].nodes == std::vector{kOfGiver});
}

TEST_CASE("parameters are handed to each giver of their step once") {
  Relay f;
  f.Give(kGiver, 0, kOfGiver, 1);
  f.Give(kOther, 0, kOfOther, 1);
  SumRelay::Replies replies;
  f.relay.OnParams(f.Params(0, 1), &replies);
  CHECK(replies.size() == 2);
  CHECK(replies.at(kGiver).items.size() == 1);
  replies.clear();
  f.relay.OnParams(f.Params(0, 1), &replies);
  CHECK(replies.empty());
}

TEST_CASE("gifts outlive the sums that they were a part of") {
  Relay f;
  f.relay.Add(kShard, f.Gradient(0, 0, TreeNode(2), 4));
  f.Give(kGiver, 0, kOfGiver, 1);
  f.gradients.Clear();
  f.relay.RestoreGifts();
  CHECK(f.Only().node == kOfGiver);
}

TEST_CASE("a sum waits for workers that gave of the step before, but not for long") {
  Relay f;
  f.Give(kGiver, 0, kOfGiver, 1);
  CHECK(f.LeavesAt(kMs, TreeNode(12)) == 11 * kMs);  // a part of what the giver has to give
  CHECK(f.LeavesAt(12 * kMs, TreeNode(12)) == 11 * kMs);
}

}  // namespace
}  // namespace pando
