#include "worker/steps.h"

#include "tests/worker/parts_fixture.h"

namespace pando {
namespace {

using Calls = std::vector<ComputeLog::Call>;
const std::vector<MicroBatch> kOurBatches = MicroBatches({0, 1, 2, 3});

TEST_CASE("nothing is handed out before the primaries have answered") {
  PartsFixture f;
  f.Enter();
  f.steps.Advance();
  CHECK(f.compute.calls.empty());
  CHECK_FALSE(f.steps.has_started());
}

TEST_CASE("two steps are in the works from the lowest incomplete one on") {
  PartsFixture f;
  f.Enter();
  f.Commit(5);
  f.steps.OnAnswered(PartsFixture::Answers(5));
  f.steps.Advance();
  CHECK(f.compute.calls == Calls{{Step(5), kOurBatches}, {Step(6), kOurBatches}});
  CHECK(f.begun == std::vector<Step>{Step(5), Step(6)});
  CHECK(f.steps.IsIssued(Step(5), MicroBatch(3)));
  CHECK_FALSE(f.steps.IsIssued(Step(5), MicroBatch(4)));
}

TEST_CASE("a step is computed when all of its calls are back") {
  PartsFixture f;
  f.Start();
  CHECK_FALSE(f.steps.IsComputed(Step(0)));
  f.steps.OnStepComputed(kMs, {Step(0)});
  CHECK(f.steps.IsComputed(Step(0)));
  CHECK(f.steps.waiting_since() == kMs);
  CHECK(f.steps.IsComputed(Step(7)));  // not in the works
}

TEST_CASE("a committed step that was computed makes room for the next one") {
  PartsFixture f;
  f.Start();
  f.steps.OnStepComputed(kMs, {Step(0)});
  f.Commit(1);
  f.steps.Advance();
  CHECK(f.compute.calls.back() == ComputeLog::Call{Step(2), kOurBatches});
  CHECK(f.abandoned.empty());
}

TEST_CASE("a step that others committed is abandoned, and all later work begins again") {
  PartsFixture f;
  f.Start();
  f.compute.calls.clear();
  f.Commit(1);
  f.steps.Advance();
  CHECK(f.compute.abandoned == std::vector<Step>{Step(0)});
  CHECK(f.abandoned == std::vector<Step>{Step(0)});
  CHECK(f.compute.calls == Calls{{Step(1), kOurBatches}, {Step(2), kOurBatches}});
}

TEST_CASE("missing work of the lowest step interrupts the next one (P12)") {
  PartsFixture f;
  f.Start();
  f.steps.OnStepComputed(kMs, {Step(0)});
  f.compute.calls.clear();
  View view = PartsFixture::MakeView(2);
  for (uint32_t m : {4, 5}) view.owners[m].worker = kWorkers[0];
  f.Enter(view);
  f.steps.OnAnswered(PartsFixture::Answers(0, {kOurs, TreeNode(12)}));  // ours, and 4
  CHECK(f.abandoned == std::vector<Step>{Step(1)});
  CHECK(f.compute.calls == Calls{{Step(0), MicroBatches({5})}});
}

TEST_CASE("a view that only gives more of a later step extends it") {
  PartsFixture f;
  f.Start();
  f.compute.calls.clear();
  View view = PartsFixture::MakeView(2);
  view.owners[4] = {.worker = kWorkers[0], .first_step = Step(1), .previous = kWorkers[1]};
  f.Enter(view);
  f.steps.OnAnswered(PartsFixture::Answers(0, {kOurs}));
  CHECK(f.abandoned.empty());
  CHECK(f.compute.calls == Calls{{Step(1), MicroBatches({4})}});
}

TEST_CASE(
    "with staleness one more step is in the works, and missing work interrupts only the last") {
  PartsFixture f(PartsFixture::StaleJob());
  f.Start();
  CHECK(f.compute.calls ==
        Calls{{Step(0), kOurBatches}, {Step(1), kOurBatches}, {Step(2), kOurBatches}});
  f.steps.OnStepComputed(kMs, {Step(0)});
  CHECK(f.steps.IsComputing());  // step 1 waits for nothing
  f.compute.calls.clear();
  View view = PartsFixture::MakeView(2);
  for (uint32_t m : {4, 5}) view.owners[m].worker = kWorkers[0];
  f.Enter(view);
  // All hold ours and 4 of step 0, and 5 of step 1.
  ShardAnswers answers;
  for (uint32_t s : {0, 1})
    answers.Add({ShardId(s), Version(0), {kOurs, TreeNode(12)}, {TreeNode(13)}});
  f.steps.OnAnswered(answers);
  CHECK(f.abandoned == std::vector<Step>{Step(2)});
  CHECK(f.compute.calls == Calls{{Step(0), MicroBatches({5})}, {Step(1), MicroBatches({4})}});
  f.steps.OnStepComputed(kMs, {Step(0)});
  f.steps.OnStepComputed(kMs, {Step(1)});
  f.steps.OnStepComputed(kMs, {Step(1)});
  CHECK_FALSE(f.steps.IsComputing());
}

TEST_CASE("help is not followed by the same step again") {
  PartsFixture f;
  View view = PartsFixture::MakeView();
  for (MicroBatchOwner& owner : view.owners) owner.worker = kWorkers[1];
  f.Enter(view);
  f.steps.OnAnswered(PartsFixture::Answers(0));
  f.steps.Advance();
  CHECK(f.compute.calls.empty());
  f.steps.Help(Step(0), MicroBatches({6}));
  f.Enter(PartsFixture::MakeView(2));
  f.steps.Advance();
  CHECK(f.compute.calls == Calls{{Step(0), MicroBatches({6})}, {Step(1), kOurBatches}});
}

TEST_CASE("a new generation starts as a joiner (P21)") {
  PartsFixture f;
  f.Start();
  f.steps.Forget();
  CHECK_FALSE(f.steps.has_started());
  CHECK(f.steps.works().empty());
}

}  // namespace
}  // namespace pando
