#include "scheduler/run_phase.h"

#include <doctest/doctest.h>

#include "tests/scheduler/parts_fixture.h"

namespace pando {
namespace {

using std::chrono::seconds;

TEST_CASE("an evaluation beside steps counts as training time, and has a figure for itself") {
  PartsFixture f;
  const Micros start = f.now;
  f.parts.phase.StartTraining(start);
  f.parts.phase.clock().OnEvaluationStarted(start + seconds(10), /*is_beside_steps=*/true);
  CHECK(f.parts.phase.clock().Time(start + seconds(12)) == seconds(12));
  f.parts.phase.clock().OnEvaluationDone(start + seconds(13));
  CHECK(f.parts.phase.clock().Time(start + seconds(20)) == seconds(20));
  CHECK(f.parts.phase.clock().evaluation_time() == seconds(3));
}

TEST_CASE("an evaluation without steps is no training time, unless a rollback ends it") {
  PartsFixture f;
  const Micros start = f.now;
  CHECK(f.parts.phase.clock().Time(start + seconds(5)) == Micros(0));
  f.parts.phase.StartTraining(start);
  f.parts.phase.clock().OnEvaluationStarted(start + seconds(10), false);
  CHECK(f.parts.phase.clock().Time(start + seconds(12)) == seconds(10));
  f.parts.phase.clock().OnEvaluationDone(start + seconds(13));
  CHECK(f.parts.phase.clock().Time(start + seconds(20)) == seconds(17));
  f.parts.phase.clock().OnEvaluationStarted(start + seconds(20), false);
  f.parts.phase.clock().OnEvaluationLost();
  CHECK(f.parts.phase.clock().Time(start + seconds(30)) == seconds(27));
}

TEST_CASE("training time stands still while the run ends, and goes on after a rollback") {
  PartsFixture f;
  f.parts.phase.StartTraining(f.now);
  f.parts.phase.StartCollecting(f.now + seconds(10));
  CHECK(f.parts.phase.clock().Time(f.now + seconds(20)) == seconds(10));
  f.parts.phase.PlanRollback(f.now, "a test");
  f.parts.phase.RollBack();
  CHECK(f.parts.phase.clock().Time(f.now + seconds(20)) == seconds(20));
}

TEST_CASE("a run ends once, for the first reason") {
  PartsFixture f;
  f.parts.phase.End(f.now, StopReason::kInterrupted, "interrupted");
  f.parts.phase.EndForLostMember(f.now, "worker 1 is gone");
  CHECK(f.parts.phase.stop().reason == StopReason::kInterrupted);
  CHECK(f.parts.phase.stop().text == "interrupted");
}

TEST_CASE("an ending run is finished when all have left, or after the grace") {
  PartsFixture f;
  f.parts.phase.FinishWhenLeft(f.now, /*have_all_left=*/true);
  CHECK_FALSE(f.parts.phase.is_finished());  // it is not ending
  CHECK(f.parts.phase.NextDeadline() == kNever);
  f.parts.phase.End(f.now, StopReason::kCompleted, "completed");
  f.parts.phase.FinishWhenLeft(f.now + milliseconds(499), /*have_all_left=*/false);
  CHECK_FALSE(f.parts.phase.is_finished());
  CHECK(f.parts.phase.NextDeadline() == f.now + milliseconds(500));
  f.parts.phase.FinishWhenLeft(f.now + milliseconds(500), /*have_all_left=*/false);
  CHECK(f.parts.phase.is_finished());
}

}  // namespace
}  // namespace pando
