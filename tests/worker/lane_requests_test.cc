#include "worker/lane_requests.h"

#include "tests/worker/parts_fixture.h"

namespace pando {
namespace {

// Version 0 is with compute; the gradients of step 0 were pushed at kMs.
struct Pushed : PartsFixture {
  Pushed() {
    Start();
    for (uint32_t s : {0, 1}) parameters.OnParams(Params(s, 0));
    AddPushed(kMs, 0);
    requests.Tick(kMs);
  }
};

TEST_CASE("without a view nothing is due") {
  PartsFixture f;
  CHECK(f.requests.NextDeadline() == kNever);
}

TEST_CASE("what compute lacks is pulled at once, and not again while the lane owes it") {
  PartsFixture f;
  f.Start();
  f.requests.EnterView(kMs);
  f.requests.Tick(kMs);
  CHECK(f.Take<Pull>().size() == 2);
  f.requests.Tick(2 * kMs);
  CHECK(f.Take<Pull>().empty());
  CHECK(f.requests.asked_at(ShardId(0)) == kMs);
}

TEST_CASE("a lane that is silent is asked what it holds, ever less often (P10)") {
  Pushed f;
  CHECK(f.requests.NextDeadline() == kMs + LaneRequests::kRetryFirst);
  f.requests.Tick(kMs + LaneRequests::kRetryFirst);
  CHECK(f.Take<Question>().size() == 2);
  CHECK(f.requests.NextDeadline() == kMs + 3 * LaneRequests::kRetryFirst);
  f.requests.Expect(700 * kMs, kLaneA);  // it sends data
  f.requests.Tick(1100 * kMs);
  CHECK(f.Take<Question>().empty());
}

TEST_CASE(
    "what a lane that was asked lacks is pushed again by the sender, what it holds is pulled") {
  Pushed f;
  f.requests.Tick(kMs + LaneRequests::kRetryFirst);
  CHECK(f.requests.OnAnswer(kLaneA, {{1, 1}, {{ShardId(0), Version(0), {kOurs}}}}));
  CHECK(f.requests.OnAnswer(kLaneB, {{1, 1}, {{ShardId(1), Version(0), {}}}}));
  CHECK(f.gradients.shard(ShardId(0)).front().is_held);
  CHECK(f.gradients.shard(ShardId(1)).front().is_unsent());
  f.requests.Tick(600 * kMs);
  const auto pulls = f.Take<Pull>();
  REQUIRE(pulls.size() == 1);
  CHECK(pulls[0].first == kLaneA);
  CHECK(pulls[0].second.items[0].version == Version(1));
}

TEST_CASE("an answer that was not waited for is no proof of a loss") {
  Pushed f;
  CHECK_FALSE(f.requests.OnAnswer(kLaneA, {{1, 1}, {{ShardId(0), Version(0), {}}}}));
  CHECK(f.gradients.shard(ShardId(0)).front().is_pushed());
}

TEST_CASE("a push to a lane that was not primary is repeated soon") {
  Pushed f;
  f.requests.OnNotPrimary(2 * kMs, ShardId(0));
  f.requests.Tick(2 * kMs);
  const Micros soon = 2 * kMs + LaneRequests::kNotPrimaryRetry;
  CHECK(f.requests.NextDeadline() == soon);
  f.requests.Tick(soon);
  const auto pushes = f.Take<Push>();
  REQUIRE(pushes.size() == 1);
  CHECK(pushes[0].first == kLaneA);
}

TEST_CASE("a lane's answer is expected behind the bytes that are under way (P23)") {
  Pushed f;
  f.requests.SendQuestion(kMs, kLaneA);
  const auto bytes = f.gradients.shard(ShardId(0)).front().payload.size_bytes();
  const Micros lease = std::chrono::milliseconds(f.plan.job.lease_ms);
  CHECK(f.lanes.NextDeadline() ==
        kMs + Micros(bytes / LaneRequests::kSlowestBytesPerMicro) + 2 * lease);
}

TEST_CASE("with staleness a commit does not repeat the next step's pushes") {
  PartsFixture f(PartsFixture::StaleJob());
  f.Start();
  f.requests.EnterView(kMs);
  for (uint32_t s : {0, 1}) f.parameters.OnParams(f.Params(s, 0));
  f.requests.Tick(kMs);
  f.AddPushed(2 * kMs, 0);
  f.AddPushed(2 * kMs, 1);
  f.Commit(1);
  for (uint32_t s : {0, 1}) f.parameters.OnParams(f.Params(s, 1));
  f.requests.Tick(3 * kMs);
  CHECK(f.Take<Push>().empty());
  f.requests.OnNotPrimary(4 * kMs, ShardId(0));
  f.requests.Tick(4 * kMs + LaneRequests::kNotPrimaryRetry);
  CHECK(f.Take<Push>().size() == 1);
}

}  // namespace
}  // namespace pando
