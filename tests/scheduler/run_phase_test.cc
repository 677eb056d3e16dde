#include "scheduler/run_progress.h"

#include <doctest/doctest.h>

#include "tests/scheduler/parts_fixture.h"

namespace pando {
namespace {

using std::chrono::seconds;

TEST_CASE("an evaluation beside steps counts as training time, and has a figure for itself") {
  PartsFixture f;
  const Micros start = f.now;
  f.run.phase.StartTraining(start);
  f.run.phase.OnEvaluationStarted(start + seconds(10), /*is_beside_steps=*/true);
  CHECK(f.run.phase.TrainingTime(start + seconds(12)) == seconds(12));
  f.run.phase.OnEvaluationDone(start + seconds(13));
  CHECK(f.run.phase.TrainingTime(start + seconds(20)) == seconds(20));
  CHECK(f.run.phase.evaluation_time() == seconds(3));
}

TEST_CASE("an evaluation without steps is no training time, unless a rollback ends it") {
  PartsFixture f;
  const Micros start = f.now;
  CHECK(f.run.phase.TrainingTime(start + seconds(5)) == Micros(0));
  f.run.phase.StartTraining(start);
  f.run.phase.OnEvaluationStarted(start + seconds(10), false);
  CHECK(f.run.phase.TrainingTime(start + seconds(12)) == seconds(10));
  f.run.phase.OnEvaluationDone(start + seconds(13));
  CHECK(f.run.phase.TrainingTime(start + seconds(20)) == seconds(17));
  f.run.phase.OnEvaluationStarted(start + seconds(20), false);
  f.run.phase.OnEvaluationLost();
  CHECK(f.run.phase.TrainingTime(start + seconds(30)) == seconds(27));
}

TEST_CASE("training time stands still while the run ends, and goes on after a rollback") {
  PartsFixture f;
  f.run.phase.StartTraining(f.now);
  f.run.phase.StartCollecting(f.now + seconds(10));
  CHECK(f.run.phase.TrainingTime(f.now + seconds(20)) == seconds(10));
  f.run.phase.TrainAgain();
  CHECK(f.run.phase.TrainingTime(f.now + seconds(20)) == seconds(20));
}

TEST_CASE("a run ends once, for the first reason") {
  PartsFixture f;
  f.run.phase.End(f.now, StopReason::kInterrupted, "interrupted");
  f.run.phase.EndForLostMember(f.now, "worker 1 is gone");
  CHECK(f.run.phase.stop().reason == StopReason::kInterrupted);
  CHECK(f.run.phase.stop().text == "interrupted");
}

TEST_CASE("an ending run is finished when all have left, or after the grace") {
  PartsFixture f;
  f.run.phase.FinishWhenLeft(f.now, /*have_all_left=*/true);
  CHECK_FALSE(f.run.phase.is_finished());  // it is not ending
  CHECK(f.run.phase.NextDeadline() == kNever);
  f.run.phase.End(f.now, StopReason::kCompleted, "completed");
  f.run.phase.FinishWhenLeft(f.now + milliseconds(499), /*have_all_left=*/false);
  CHECK_FALSE(f.run.phase.is_finished());
  CHECK(f.run.phase.NextDeadline() == f.now + milliseconds(500));
  f.run.phase.FinishWhenLeft(f.now + milliseconds(500), /*have_all_left=*/false);
  CHECK(f.run.phase.is_finished());
}

}  // namespace
}  // namespace pando
