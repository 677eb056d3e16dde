#include "scheduler/run_phase.h"

#include <doctest/doctest.h>

#include "tests/scheduler/parts_fixture.h"

namespace pando {
namespace {

using std::chrono::seconds;

TEST_CASE("evaluations do not count as training time, unless a rollback ends them") {
  PartsFixture f;
  const Micros start = f.now;
  CHECK(f.phase.TrainingTime(start + seconds(5)) == Micros(0));
  f.phase.StartTraining(start);
  f.phase.OnEvaluationStarted(start + seconds(10));
  CHECK(f.phase.TrainingTime(start + seconds(12)) == seconds(10));
  f.phase.OnEvaluationDone(start + seconds(13));
  CHECK(f.phase.TrainingTime(start + seconds(20)) == seconds(17));
  f.phase.OnEvaluationStarted(start + seconds(20));
  f.phase.OnEvaluationLost();
  CHECK(f.phase.TrainingTime(start + seconds(30)) == seconds(27));
}

TEST_CASE("training time stands still while the run ends, and goes on after a rollback") {
  PartsFixture f;
  f.phase.StartTraining(f.now);
  f.phase.StartCollecting(f.now + seconds(10));
  CHECK(f.phase.TrainingTime(f.now + seconds(20)) == seconds(10));
  f.phase.TrainAgain();
  CHECK(f.phase.TrainingTime(f.now + seconds(20)) == seconds(20));
}

TEST_CASE("a run ends once, for the first reason") {
  PartsFixture f;
  f.phase.End(f.now, StopReason::kInterrupted, "interrupted");
  f.phase.EndForLostMember(f.now, "worker 1 is gone");
  CHECK(f.phase.stop().reason == StopReason::kInterrupted);
  CHECK(f.phase.stop().text == "interrupted");
}

TEST_CASE("an ending run is finished when all have left, or after the grace") {
  PartsFixture f;
  f.phase.FinishWhenLeft(f.now, /*have_all_left=*/true);
  CHECK_FALSE(f.phase.is_finished());  // it is not ending
  CHECK(f.phase.NextDeadline() == kNever);
  f.phase.End(f.now, StopReason::kCompleted, "completed");
  f.phase.FinishWhenLeft(f.now + milliseconds(499), /*have_all_left=*/false);
  CHECK_FALSE(f.phase.is_finished());
  CHECK(f.phase.NextDeadline() == f.now + milliseconds(500));
  f.phase.FinishWhenLeft(f.now + milliseconds(500), /*have_all_left=*/false);
  CHECK(f.phase.is_finished());
}

}  // namespace
}  // namespace pando
