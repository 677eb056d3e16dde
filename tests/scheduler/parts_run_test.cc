// The parts that follow the run, each alone: RunProgress, EvaluationRounds, FinalWeights.
#include <doctest/doctest.h>

#include "tests/scheduler/parts_fixture.h"

namespace pando {
namespace {

JobPlan EvaluatingPlan() {
  JobPlan plan = MakePlan(2, 2);
  plan.job.eval_every_steps = 500;
  return plan;
}

EvaluationResult ResultFor(const Evaluate& slice) {
  return {.version = slice.version,
          .slice = slice.slice,
          .sample_count = slice.last_sample - slice.first_sample,
          .confusion = {{0, 0, static_cast<uint32_t>(slice.last_sample - slice.first_sample)}}};
}

// ---- RunProgress -------------------------------------------------------------------------------

TEST_CASE("the run has committed what its slowest primary has") {
  PartsFixture f;
  f.StartTraining();
  const PeerId second = f.parts.members.Find(Incarnation(11))->peer;
  View view = f.parts.views.view();
  view.id = f.parts.views.NextId();
  view.shards[0].primary = second;
  f.parts.views.Publish(view);
  f.parts.progress.OnView();
  CHECK_FALSE(f.Commit(7));
  CHECK(f.parts.progress.committed() == Version(0));
  f.server = second;
  CHECK(f.Commit(5));
  CHECK(f.parts.progress.committed() == Version(5));
}

TEST_CASE("a report of another view counts for nothing, and is not acknowledged") {
  PartsFixture f;
  f.StartTraining();
  f.SentTo<ProgressAck>(f.server);
  f.parts.progress.OnProgress(f.now, {.view = {1, 99}, .sender = f.server}, {Version(7), {}});
  const auto acks = f.SentTo<ProgressAck>(f.server);
  REQUIRE(acks.size() == 1);
  CHECK(acks[0].committed == Version(0));
  CHECK(f.parts.progress.committed() == Version(0));
}

TEST_CASE("each row is reported once, in order") {
  PartsFixture f;
  f.StartTraining();
  const Envelope envelope{.view = f.parts.views.view().id, .sender = f.server};
  f.parts.progress.OnProgress(f.now, envelope,
                              {Version(2), {{.step = Step(0)}, {.step = Step(1)}}});
  f.parts.progress.OnProgress(f.now, envelope,
                              {Version(3), {{.step = Step(1)}, {.step = Step(2)}}});
  CHECK(f.recorder.rows == std::vector{Step(0), Step(1), Step(2)});
  CHECK(f.parts.progress.next_row() == Step(3));
  CHECK(f.parts.progress.made() == Version(3));
  f.parts.progress.OnProgress(f.now, envelope, {Version(9), {{.step = Step(3)}}});
  CHECK(f.parts.progress.made() == Version(9));  // the others follow
}

TEST_CASE("a row that the metric shard's primary no longer has is not waited for") {
  PartsFixture f;
  f.StartTraining();
  f.parts.progress.OnProgress(f.now, {.view = {1, 99}, .sender = f.server}, {Version(7), {}});
  CHECK(f.parts.progress.next_row() == Step(0));  // a backup's report, of an earlier view
  f.Commit(7);
  CHECK(f.parts.progress.next_row() == Step(7));
  CHECK(f.recorder.rows.empty());
}

TEST_CASE("with early stopping no scalars are sent beyond the next evaluation (P32)") {
  JobPlan plan = EvaluatingPlan();
  plan.job.early_stop_patience = 2;
  PartsFixture f(plan);
  f.StartTraining();
  f.parts.progress.OnScalarsRequest(f.server, {Step(0)});
  f.parts.progress.OnScalarsRequest(f.server, {Step(1)});  // not the first of a block
  const auto scalars = f.SentTo<Scalars>(f.server);
  REQUIRE(scalars.size() == 1);
  CHECK(scalars[0].steps.size() == 500);
}

// ---- EvaluationRounds ---------------------------------------------------------------------------

TEST_CASE("a slice goes to another worker when its worker is gone, and to one worker only") {
  PartsFixture f(EvaluatingPlan());
  f.StartTraining();
  const PeerId other = f.parts.members.Find(Incarnation(21))->peer;
  f.Commit(499);
  CHECK_FALSE(f.parts.evaluations.StartDue(f.now));
  f.parts.evaluations.HandOutSlices();
  CHECK(f.SentTo<Evaluate>(f.worker).empty());
  f.Commit(500);
  CHECK_FALSE(f.parts.evaluations.StartDue(f.now));
  f.parts.evaluations.HandOutSlices();
  f.parts.evaluations.HandOutSlices();
  CHECK(f.SentTo<Evaluate>(f.worker).size() == 1);
  f.parts.membership.Forget(f.worker.node);
  f.parts.evaluations.HandOutSlices();
  CHECK(f.SentTo<Evaluate>(other).size() == 1);
}

TEST_CASE("a result is in the journal before it is reported; the last one ends the run") {
  PartsFixture f(EvaluatingPlan());
  f.StartTraining();
  bool is_over = false;
  for (uint64_t version : {500, 1000}) {
    CHECK_FALSE(is_over);
    f.Commit(version);
    f.parts.evaluations.StartDue(f.now);
    f.parts.evaluations.HandOutSlices();
    const auto slices = f.SentTo<Evaluate>(f.worker);
    REQUIRE(slices.size() == 1);
    EvaluationResult unsound = ResultFor(slices[0]);
    unsound.confusion = {};
    CHECK_FALSE(f.parts.evaluations.OnEvaluationResult(f.now, unsound));
    is_over = f.parts.evaluations.OnEvaluationResult(f.now, ResultFor(slices[0]));
    CHECK(f.parts.history.evaluated() == Version(version));
  }
  CHECK(is_over);
  CHECK(f.journaled_count >= 2);
  CHECK(f.recorder.evaluations.size() == 2);
}

TEST_CASE("a pin's release is repeated until it is acknowledged, and again under the next view") {
  PartsFixture f;
  f.StartTraining();
  f.parts.history.Add({.version = Version(10)});
  f.parts.evaluations.RepeatTo(f.server);
  CHECK(f.SentTo<ReleasePin>(f.server).size() == 1);
  f.parts.evaluations.OnPinReleased(f.server, {Version(10)});
  f.parts.evaluations.RepeatTo(f.server);
  CHECK(f.SentTo<ReleasePin>(f.server).empty());
  f.parts.evaluations.OnView();
  f.parts.evaluations.RepeatTo(f.server);
  CHECK(f.SentTo<ReleasePin>(f.server).size() == 1);
}

// ---- FinalWeights ------------------------------------------------------------------------------

struct FinalFixture : PartsFixture {
  FinalFixture() { StartTraining(); }
  void Answer(const Pull& pull) {
    for (const PullItem& item : pull.items) {
      const size_t size = plan.shards.range(item.shard).size();
      const auto zeros = std::make_shared<const FloatBuffer>(size);
      parts.final_weights.OnParams(
          now, server, {{{item.shard, item.version, Blob(std::as_bytes(zeros->span()), zeros)}}});
    }
  }
};

TEST_CASE("the run is completed when all shards are here and servers store no snapshot") {
  FinalFixture f;
  f.parts.final_weights.StartCollecting(f.now);
  CHECK(f.parts.phase.is_collecting());
  for (const Pull& pull : f.SentTo<Pull>(f.server)) f.Answer(pull);
  f.parts.final_weights.Tick(f.now);
  CHECK(f.parts.phase.is_collecting());  // the final snapshot may still come
  f.now += std::chrono::seconds(31);
  f.parts.final_weights.Tick(f.now);
  CHECK(f.recorder.HasEvent("snapshot-failed"));
  CHECK(f.recorder.final_version == Version(1000));
  CHECK(f.parts.phase.is_completed());
  CHECK(f.parts.phase.stop().reason == StopReason::kCompleted);
}

TEST_CASE("missing shards are pulled again after a silence, later each time") {
  FinalFixture f;
  f.parts.final_weights.StartCollecting(f.now);
  CHECK(f.SentTo<Pull>(f.server).size() == 1);
  f.parts.final_weights.Repeat(f.now + milliseconds(499));
  CHECK(f.SentTo<Pull>(f.server).empty());
  f.parts.final_weights.Repeat(f.now + milliseconds(500));
  f.parts.final_weights.Repeat(f.now + milliseconds(1499));
  CHECK(f.SentTo<Pull>(f.server).size() == 1);
  f.parts.final_weights.Repeat(f.now + milliseconds(1500));
  CHECK(f.SentTo<Pull>(f.server).size() == 1);
}

TEST_CASE("weights that cannot be written are tried again for half an hour") {
  FinalFixture f;
  f.recorder.disk = Unavailable("no space left on device");
  f.parts.final_weights.StartCollecting(f.now);
  for (const Pull& pull : f.SentTo<Pull>(f.server)) f.Answer(pull);
  f.now += std::chrono::seconds(31);
  f.parts.final_weights.Tick(f.now);
  CHECK(f.recorder.HasEvent("weights-failed"));
  f.now += std::chrono::minutes(29);
  f.parts.final_weights.Tick(f.now);
  CHECK(f.parts.phase.is_collecting());
  f.now += std::chrono::minutes(1);
  f.parts.final_weights.Tick(f.now);
  CHECK(f.parts.phase.stop().reason == StopReason::kFailed);
  CHECK_FALSE(f.parts.phase.is_completed());
}

}  // namespace
}  // namespace pando
