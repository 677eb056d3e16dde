#include "worker/lifecycle.h"

#include "tests/worker/parts_fixture.h"

namespace pando {
namespace {

struct Life : PartsFixture {
  Life() : lifecycle({.kind = "test"}, compute, member) {}
  Lifecycle lifecycle;
};

TEST_CASE("Ready is repeated until a view has the worker") {
  Life f;
  f.lifecycle.Tick(kMs);
  f.lifecycle.Tick(2 * kMs);
  CHECK(f.Take<Ready>().size() == 1);
  CHECK(f.lifecycle.NextDeadline() == kMs + Lifecycle::kRepeatInterval);
  f.lifecycle.Tick(kMs + Lifecycle::kRepeatInterval);
  CHECK(f.Take<Ready>().size() == 1);
  f.lifecycle.SetMember(true);
  CHECK(f.lifecycle.NextDeadline() == kNever);
}

TEST_CASE("a failure is repeated, and forgotten with its generation (P21)") {
  Life f;
  f.lifecycle.SetMember(true);
  f.lifecycle.OnComputeFailed({Internal("a loss that is not a number")});
  f.lifecycle.Tick(kMs);
  const auto failures = f.Take<Failure>();
  REQUIRE(failures.size() == 1);
  CHECK(failures[0].second.kind == FailureKind::kTraining);
  f.lifecycle.ForgetFailure();
  f.lifecycle.Tick(1000 * kMs);
  CHECK(f.Take<Failure>().empty());
  f.lifecycle.OnComputeFailed({Unavailable("no such file")});
  CHECK(f.lifecycle.failure()->kind == FailureKind::kMachine);
}

TEST_CASE("Leave is sent at once, and repeated") {
  Life f;
  f.lifecycle.SetMember(true);
  f.lifecycle.Leave(kMs);
  f.lifecycle.Tick(kMs);
  f.lifecycle.Tick(kMs + Lifecycle::kRepeatInterval);
  CHECK(f.Take<Leave>().size() == 2);
  CHECK(f.lifecycle.is_leaving());
}

TEST_CASE("every Stop is acknowledged, the first one counts") {
  Life f;
  f.lifecycle.OnStop(kScheduler, {StopReason::kCompleted, ""});
  f.lifecycle.OnStop(kScheduler, {StopReason::kFailed, ""});
  CHECK(f.Take<Bye>().size() == 2);
  CHECK(f.lifecycle.stop().reason == StopReason::kCompleted);
  CHECK(f.compute.abandoned == std::vector<Step>{Step(0)});
  f.lifecycle.OnRefused({"the run is over", RefusalKind::kRunIsOver});
  CHECK_FALSE(f.lifecycle.refusal());
}

TEST_CASE("a refusal ends the worker") {
  Life f;
  f.lifecycle.OnRefused({"its lease expired", RefusalKind::kGivenUp});
  CHECK(f.lifecycle.finished());
  CHECK(f.lifecycle.refusal() == RefusalKind::kGivenUp);
}

}  // namespace
}  // namespace pando
