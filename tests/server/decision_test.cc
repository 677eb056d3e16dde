// A lane's work with scalars that end early, because the scheduler has yet to decide (P32).
#include "tests/server/lane_fixture.h"

namespace pando {
namespace {

using std::chrono::milliseconds;

Job DecidingJob() {
  Job job = MakeJob(20);
  job.eval_every_steps = 2;
  job.early_stop_patience = 1;
  return job;
}

void Give(LaneFixture& f, size_t steps) {
  f.SendFrom(LaneFixture::kScheduler, 1,
             Scalars{Step(0), std::vector<StepScalars>(steps, {.lr = 0.5f, .momentum = 0.9f})});
  f.Deliver();
}

void PushBoth(LaneFixture& f, uint64_t step) {
  for (uint32_t shard : {0, 1}) f.PushStep(1, step, shard);
  f.Deliver();
}

size_t RequestCount(const LaneFixture& f) {
  return f.Heard<ScalarsRequest>(LaneFixture::kScheduler).size();
}

LaneFixture& StartAlone(LaneFixture& f) {
  f.Place(0, 1, {});
  f.Place(1, 1, {});
  f.Announce();
  f.Deliver();
  return f;
}

TEST_CASE("a lane makes what is decided, and goes on when more is") {
  LaneFixture f(1, DecidingJob());
  Give(StartAlone(f), 2);
  const size_t asked = RequestCount(f);
  f.Wait(milliseconds(500));
  CHECK(RequestCount(f) == asked);  // there is no more before version 2
  for (uint64_t step : {0, 1, 2}) PushBoth(f, step);
  CHECK(f.shard(1).newest() == Version(2));
  f.Wait(milliseconds(500));
  CHECK(RequestCount(f) > asked);
  CHECK(f.shard(1).newest() == Version(2));
  Give(f, 4);
  CHECK(f.shard(1).newest() == Version(3));
  Give(f, 2);  // late, and shorter
  PushBoth(f, 3);
  CHECK(f.shard(1).newest() == Version(4));
}

TEST_CASE("in a new generation it is decided again") {
  LaneFixture f(1, DecidingJob());
  Give(StartAlone(f), 20);
  PushBoth(f, 0);
  CHECK(f.shard(1).newest() == Version(1));
  f.view.generation = 1;
  f.Announce();
  f.Deliver();
  PushBoth(f, 0);
  CHECK(f.shard(1).newest() == Version(0));
  Give(f, 2);
  CHECK(f.shard(1).newest() == Version(1));
}

TEST_CASE("a version that the run may end with is stored") {
  LaneFixture f(1, DecidingJob());
  Give(StartAlone(f), 4);
  for (uint64_t step : {0, 1, 2}) PushBoth(f, step);
  std::vector<Version> stored;
  for (const StoreRequest& store : f.snapshots[1].stores) {
    if (store.shard == ShardId(0)) stored.push_back(store.snapshot.version);
  }
  CHECK(stored == std::vector{Version(2)});
}

}  // namespace
}  // namespace pando
