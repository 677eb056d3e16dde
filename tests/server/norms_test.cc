#include "server/norms.h"

#include "server/lane_limits.h"
#include "tests/server/part_fixture.h"
#include "tests/written_sum.h"

namespace pando {
namespace {

// Server 1 leads shard 0, whose update needs shard 1's value from server 2.
struct NormsFixture : PartFixture {
  NormsFixture() : PartFixture(ClippingJob()) {
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
  Norms norms{{member, replicas, plan}, maker, kLease};
};

TEST_CASE("a shard's own values are sent, and others' are pulled until they are known (P16)") {
  NormsFixture f;
  CHECK_FALSE(f.Collect());
  f.norms.Tick(f.now);
  CHECK(ReadSum(f.TakeSent<Partials>().at(0).items.at(0).values) == 64.0);
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
