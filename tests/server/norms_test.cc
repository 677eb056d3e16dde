#include "server/norms/norms.h"

#include "server/lane_limits.h"
#include "tests/server/part_fixture.h"
#include "tests/written_sum.h"

namespace pando {
namespace {

// Server 1 leads shard 0, whose update needs shard 1's value from server 2.
struct NormsFixture : PartFixture {
  explicit NormsFixture(size_t peers_max = NormTree::kPeersMax)
      : PartFixture(ClippingJob()), norms({member, replicas, plan}, maker, kLease, peers_max) {
    Place(0, 1);
    Place(1, 2);
    Enter();
    norms.EnterView(now);
    norms.TakeNews();
    norms.Tick(now);
    sent.clear();
  }
  // The factors for step 0's gradient, whose mean is of norm 8.
  std::optional<std::vector<float>> Collect() {
    if (!shard(0).is_ready()) FillTree(0, 1.0f);
    return norms.CollectFactors(now, shard(0), {.lr = 0.5f});
  }
  void Give(uint64_t step, std::vector<float> values) {
    norms.OnPartials(From(Server(2)), {{{ShardId(1), Step(step), std::move(values)}}});
  }
  void GiveSum(uint64_t step, std::vector<ShardId> shards, double squares) {
    PartialTotal total;
    total.squares.Add(squares);
    norms.OnPartials(From(Server(2)), {{}, {{Step(step), std::move(shards), total.Write()}}});
  }
  Norms norms;
};

constexpr float kFactorOfNorm10 = static_cast<float>(2.0 / (10.0 + 1e-6));

TEST_CASE("a shard's own values are sent, and others' are pulled until they are known (P16)") {
  NormsFixture f;
  CHECK_FALSE(f.Collect());
  f.norms.Tick(f.now);
  const PartialSum sent = f.TakeSent<Partials>().at(0).sums.at(0);
  CHECK(sent.step == Step(0));
  CHECK(sent.shards == std::vector<ShardId>{ShardId(0)});
  CHECK(ReadSum(sent.values) == 64.0);
  f.now += kRetryInterval;
  f.norms.Tick(f.now);
  CHECK(f.TakeSent<PartialsPull>().at(0).items.at(0).shard == ShardId(1));
  f.Give(0, WrittenSum(0));
  CHECK(f.norms.TakeNews());
  const auto factors = f.Collect();
  REQUIRE(factors);
  CHECK(factors->at(0) == static_cast<float>(2.0 / (8.0 + 1e-6)));
}

TEST_CASE("values of other sizes and of steps out of reach are not taken") {
  NormsFixture f;
  f.Give(2, WrittenSum(0));
  f.Give(0, {});
  f.Give(0, {0.0f, 0.0f});
  CHECK_FALSE(f.norms.TakeNews());
  CHECK_FALSE(f.Collect());
}

TEST_CASE("a sum counts once, and a value beside it that is part of it does not count") {
  NormsFixture f;
  f.GiveSum(0, {ShardId(1)}, 36);
  f.GiveSum(0, {ShardId(1)}, 36);
  f.Give(0, WrittenSum(36));
  CHECK(f.Collect()->at(0) == kFactorOfNorm10);
}

TEST_CASE("sums of unknown shards, of other sizes and of steps out of reach do not count") {
  NormsFixture f;
  f.GiveSum(2, {ShardId(1)}, 36);
  f.GiveSum(0, {ShardId(1), ShardId(2)}, 36);
  f.GiveSum(3, {}, 36);
  f.norms.OnPartials(f.From(PartFixture::Server(2)), {{}, {{Step(0), {ShardId(1)}, {1.0f}}}});
  CHECK_FALSE(f.Collect());
}

TEST_CASE("a sum from a lane that is not in the tree is not taken") {
  NormsFixture f;
  f.norms.OnPartials(f.From(PartFixture::Server(3)),
                     {{}, {{Step(0), {ShardId(1)}, PartialTotal().Write()}}});
  CHECK_FALSE(f.norms.TakeNews());
}

TEST_CASE("a sum that has a shard of another sum is dropped, and the rest is pulled") {
  NormsFixture f;
  f.GiveSum(0, {ShardId(0), ShardId(1)}, 36);  // by an earlier primary of shard 0
  CHECK(f.Collect()->at(0) == static_cast<float>(2.0 / (6.0 + 1e-6)));
}

TEST_CASE("the total over all shards takes the place of what was known") {
  NormsFixture f;
  f.Collect();
  f.GiveSum(0, {}, 100);
  CHECK(f.Collect()->at(0) == kFactorOfNorm10);
}

TEST_CASE("a total over all shards is no part of the sum that a new view's lanes get") {
  NormsFixture f;
  f.GiveSum(0, {}, 100);
  f.Enter();
  f.norms.EnterView(f.now);
  f.Collect();
  f.norms.Tick(f.now);
  const PartialSum sent = f.TakeSent<Partials>().at(0).sums.at(0);
  CHECK(sent.shards == std::vector<ShardId>{ShardId(0)});
  CHECK(ReadSum(sent.values) == 64.0);
}

TEST_CASE("a group's leader sends its members the total, once in each view") {
  NormsFixture f(/*peers_max=*/1);
  f.Collect();
  f.norms.Tick(f.now);
  CHECK(f.TakeSent<Partials>().empty());  // it waits for its member, and there is no other group
  f.GiveSum(0, {ShardId(1)}, 36);
  f.norms.Tick(f.now);
  const auto sent = f.TakeSent<Partials>();
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].sums.at(0).shards.empty());  // all shards
  CHECK(ReadSum(sent[0].sums[0].values) == 100.0);
  CHECK(f.Collect()->at(0) == kFactorOfNorm10);
  f.norms.Tick(f.now);
  CHECK(f.TakeSent<Partials>().empty());
  f.Enter();
  f.norms.EnterView(f.now);
  f.norms.Tick(f.now);
  CHECK(f.TakeSent<Partials>().size() == 1);
}

TEST_CASE("a leader adds what it has pulled for its group") {
  NormsFixture f(/*peers_max=*/1);
  f.Collect();
  f.Give(0, WrittenSum(36));
  f.norms.Tick(f.now);
  CHECK(ReadSum(f.TakeSent<Partials>().at(0).sums.at(0).values) == 100.0);
}

TEST_CASE("a pull is answered at once, even without values") {
  NormsFixture f;
  f.norms.OnPartialsPull(f.From(PartFixture::Server(2)), {{{ShardId(0), Step(0)}}});
  CHECK(f.TakeSent<Partials>().at(0).items.empty());
  f.Collect();
  f.norms.OnPartialsPull(f.From(PartFixture::Server(2)), {{{ShardId(0), Step(0)}}});
  CHECK(f.TakeSent<Partials>().at(0).items.size() == 1);
}

TEST_CASE("a lane that was asked and is silent is reported after two leases (P23)") {
  NormsFixture f;
  f.Collect();
  f.now += kRetryInterval;
  f.norms.Tick(f.now);
  f.now += 2 * kLease;
  f.norms.Tick(f.now);
  CHECK(f.TakeSent<PeerSilent>().at(0).peer == PartFixture::Server(2));
}

TEST_CASE("a new view's primaries get our values and are asked for theirs at once") {
  NormsFixture f;
  f.Collect();
  f.Place(1, 3);
  f.Enter();
  f.norms.EnterView(f.now);
  CHECK(f.norms.NextDeadline() == Micros(0));
  f.norms.Tick(f.now);
  bool is_told = false, is_asked = false;
  for (const Envelope& envelope : f.sent) {
    CHECK(envelope.receiver == PartFixture::Server(3));
    is_told |= std::holds_alternative<Partials>(envelope.message);
    is_asked |= std::holds_alternative<PartialsPull>(envelope.message);
  }
  CHECK(is_told);
  CHECK(is_asked);
}

}  // namespace
}  // namespace pando
