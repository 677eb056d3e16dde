#include "worker/helping.h"

#include "tests/worker/parts_fixture.h"

namespace pando {
namespace {

constexpr Micros kHelpPatience = StepClock::kPatienceSteps * kStepTime;

// At step 3, whose part of ours is done since `now`; steps have taken kStepTime.
struct Waiting : PartsFixture {
  Waiting()
      : lifecycle({}, compute, member),
        questions(member, lanes, requests),
        helping(shared, lifecycle, steps, questions) {
    Start();
    lifecycle.SetMember(true);
    for (uint64_t version = 0; version < 4; ++version) {
      Commit(version);
      helping.OnVersions(now);
      steps.Advance();
      steps.OnStepComputed(now, {Step(version)});
      if (version < 3) now += kStepTime;
    }
    compute.calls.clear();
    helping.Tick(now);
  }
  Lifecycle lifecycle;
  Questions questions;
  Helping helping;
  Micros now{0};
};

TEST_CASE("a worker that waits much longer than a step asks what is missing") {
  Waiting f;
  CHECK(f.helping.clock().usual() == kStepTime);
  CHECK(f.helping.NextDeadline() == f.now + kHelpPatience);
  f.helping.Tick(f.now + kHelpPatience - kMs);
  CHECK_FALSE(f.questions.is_open());
  f.helping.Tick(f.now + kHelpPatience);
  CHECK(f.questions.is_open());
}

TEST_CASE("it computes a micro-batch that some shard lacks") {
  Waiting f;
  f.helping.Tick(f.now + kHelpPatience);
  for (const auto& [lane, shard] : {std::pair(kLaneA, 0u), std::pair(kLaneB, 1u)})
    f.questions.OnAnswer(f.now, lane,
                         {{1, 1}, {{ShardId(shard), Version(3), {kOurs, TreeNode(6)}}}});
  f.helping.OnAnswered(f.now + kHelpPatience);
  REQUIRE(!f.compute.calls.empty());
  CHECK(f.compute.calls[0] == ComputeLog::Call{Step(3), MicroBatches({6})});
}

TEST_CASE("news of a version, or a new view, begins the wait again") {
  Waiting f;
  f.Commit(4);
  f.helping.OnVersions(f.now);
  CHECK(f.helping.NextDeadline() == kNever);
  Waiting other;
  other.helping.EnterView();
  CHECK(other.helping.NextDeadline() == kNever);
}

TEST_CASE("encoded gradients with feedback are never computed for others (P34)") {
  Job job = PartsFixture::SmallJob();
  job.push_codec = PayloadCodec::kTopK;
  PartsFixture f(job);
  Lifecycle lifecycle({}, f.compute, f.member);
  Questions questions(f.member, f.lanes, f.requests);
  Helping helping(f.shared, lifecycle, f.steps, questions);
  f.Start();
  f.steps.OnStepComputed(kMs, {Step(0)});
  helping.Tick(60'000 * kMs);
  CHECK(helping.NextDeadline() == kNever);
}

}  // namespace
}  // namespace pando
