// The end of a run: evaluated, collected, stored.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>

#include "tests/scheduler/storing_fixture.h"

namespace pando {
namespace {

void Evaluate(StoringFixture& f) {
  const auto* slice = f.recorder.LastTo<pando::Evaluate>(Incarnation(20));
  REQUIRE(slice != nullptr);
  f.From(
      20,
      EvaluationResult{
          .version = slice->version, .slice = 0, .sample_count = 100, .confusion = {{0, 0, 100}}});
}

void Collect(StoringFixture& f) {
  const auto& shards = f.scheduler->view().shards;
  for (uint32_t s = 0; s < shards.size(); ++s) {
    const auto zeros = std::make_shared<const FloatBuffer>(f.plan.shards.range(ShardId(s)).size());
    f.From(shards[s].primary.incarnation.value(),
           Params{{{ShardId(s), f.plan.steps.final_version(),
                    Blob(std::as_bytes(zeros->span()), zeros)}}},
           shards[s].primary.lane);
  }
}

// The parameters of each shard's backup, which are compared without a final snapshot.
void Compare(StoringFixture& f, float value = 0) {
  const auto& shards = f.scheduler->view().shards;
  for (uint32_t s = 0; s < shards.size(); ++s) {
    const auto floats = std::make_shared<FloatBuffer>(f.plan.shards.range(ShardId(s)).size());
    floats->data()[0] = value;
    const PeerId backup = shards[s].in_sync_backups.at(0);
    f.From(backup.incarnation.value(),
           Params{{{ShardId(s), f.plan.steps.final_version(),
                    Blob(std::as_bytes(std::span<const float>(floats->span())), floats)}}},
           backup.lane);
  }
}

TEST_CASE("a run that is evaluated, collected and stored is finished, in the journal too") {
  StoringFixture f;
  f.StartAll();
  f.MakeTo(1000);
  Evaluate(f);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kCollecting);
  Collect(f);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kCollecting);
  SUBCASE("the final snapshot is stored") { f.Store(1000); }
  SUBCASE("the disk is full") {
    f.Store(1000, "no space left on device");
    CHECK_FALSE(f.recorder.has_weights);
    SUBCASE("and the backups have other parameters") {
      Compare(f, 1);
      CHECK(f.recorder.HasEvent("weights-differ"));
      Collect(f);
    }
    Compare(f);
  }
  CHECK(f.recorder.has_weights);
  CHECK(f.journal.state->is_completed);
  CHECK(f.scheduler->stop().reason == StopReason::kCompleted);
  f.StartScheduler();
  f.scheduler->Tick(f.now);
  CHECK(f.scheduler->stop().reason == StopReason::kCompleted);
}

TEST_CASE("weights that are not those of the final snapshot are pulled again, and end the run") {
  StoringFixture f;
  f.StartAll();
  f.MakeTo(1000);
  Evaluate(f);
  f.Store(1000);
  f.recorder.differs = true;
  Collect(f);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kCollecting);
  CHECK(f.recorder.HasEvent("weights-differ"));
  SUBCASE("they come right") {
    f.recorder.differs = false;
    Collect(f);
    CHECK(f.scheduler->stop().reason == StopReason::kCompleted);
  }
  SUBCASE("they do not") {
    Collect(f);
    CHECK(f.scheduler->stop().reason == StopReason::kFailed);
    CHECK_FALSE(f.recorder.has_weights);
  }
}

size_t PullsTo(const StoringFixture& f, PeerId lane) {
  return std::ranges::count_if(f.recorder.sent, [&](const Envelope& envelope) {
    return envelope.receiver == lane && std::holds_alternative<Pull>(envelope.message);
  });
}

TEST_CASE("final weights are asked for again after silence, not while they come") {
  StoringFixture f(StoringPlan(1, 1));
  f.StartAll();
  f.MakeTo(1000);
  Evaluate(f);
  REQUIRE(f.scheduler->phase() == Scheduler::Phase::kCollecting);
  const PeerId primary = f.scheduler->view().shards[0].primary;
  CHECK(PullsTo(f, primary) == 1);
  const auto zeros = std::make_shared<const FloatBuffer>(f.plan.shards.range(ShardId(0)).size());
  const Params first{
      {{ShardId(0), f.plan.steps.final_version(), Blob(std::as_bytes(zeros->span()), zeros)}}};
  for (int i = 0; i < 10; ++i) {  // a slow link: the others come later
    f.Wait(milliseconds(400));
    f.From(primary.incarnation.value(), first, primary.lane);
  }
  CHECK(PullsTo(f, primary) == 1);
  f.Wait(milliseconds(800));
  CHECK(PullsTo(f, primary) == 2);
  f.Wait(milliseconds(1300));
  CHECK(PullsTo(f, primary) == 3);
  f.Wait(std::chrono::minutes(1));
  CHECK(PullsTo(f, primary) <= 20);
  Collect(f);
  f.Store(1000);
  CHECK(f.scheduler->stop().reason == StopReason::kCompleted);
}

TEST_CASE("the end waits for a disk that does not take the final weights") {
  StoringFixture f;
  f.StartAll();
  f.MakeTo(1000);
  Evaluate(f);
  f.Store(1000, "no space left on device");
  f.recorder.disk = NoSpace("no space left on device");
  Collect(f);
  Compare(f);
  f.Wait(std::chrono::seconds(10));
  CHECK(f.scheduler->phase() == Scheduler::Phase::kCollecting);
  CHECK_FALSE(f.journal.state->is_completed);
  CHECK(std::ranges::count(f.recorder.events, "weights-failed", &RunEvent::name) == 1);
  SUBCASE("then the disk has space again") {
    f.recorder.disk = Status();
    f.Wait(std::chrono::seconds(2));
    CHECK(f.journal.state->is_completed);
    CHECK(f.scheduler->stop().reason == StopReason::kCompleted);
  }
  SUBCASE("the disk stays full: the run can be resumed") {
    f.now += std::chrono::minutes(31);
    f.scheduler->Tick(f.now);
    CHECK(f.scheduler->stop().reason == StopReason::kFailed);
    CHECK_FALSE(f.journal.state->is_completed);
  }
}

TEST_CASE("a shard lost at the very end is trained again, and evaluated once") {
  StoringFixture f(StoringPlan(1, 1));
  f.StartAll();
  f.MakeTo(1000);
  f.Store(500);
  Evaluate(f);
  const Micros trained = f.scheduler->Times(f.now).training;
  f.Wait(milliseconds(100));
  CHECK(f.scheduler->Times(f.now).training == trained);
  f.Exit(11, Role::kServer);
  f.Add(12, Role::kServer);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kTraining);
  CHECK(f.scheduler->view().restore.version == Version(500));
  const Micros before = f.scheduler->Times(f.now).training;
  f.Wait(milliseconds(100));
  CHECK(f.scheduler->Times(f.now).training == before + milliseconds(100));
  f.Commit(1000);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kCollecting);
  CHECK(f.recorder.evaluations.size() == 1);
  const Micros after = f.scheduler->Times(f.now).training;
  f.Wait(milliseconds(100));
  CHECK(f.scheduler->Times(f.now).training == after);
  Collect(f);
  f.Store(1000);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kStopping);
}

TEST_CASE("a run restored from its last version has its final snapshot already") {
  StoringFixture f(StoringPlan(1, 1));
  f.StartAll();
  f.MakeTo(1000);
  Evaluate(f);
  f.Store(1000);
  f.Exit(11, Role::kServer);
  f.Add(12, Role::kServer);
  REQUIRE(f.scheduler->view().restore.version == Version(1000));
  f.Commit(1000);
  Collect(f);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kStopping);
  CHECK(f.scheduler->stop().reason == StopReason::kCompleted);
}

}  // namespace
}  // namespace pando
