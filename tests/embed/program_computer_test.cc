// The computing side of a program: what the session sees of its micro-batches, its parameters, its
// evaluations and its interruptions.
#include "embed/program_computer.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "embed/pando_worker.h"
#include "plan/unlogged_metric.h"
#include "tests/contains.h"
#include "tests/embed/embed_fixture.h"

namespace pando {
namespace {

using Clock = std::chrono::steady_clock;
using Outcome = ProgramComputer::Outcome;

struct ComputerFixture {
  explicit ComputerFixture(uint64_t verify_every = 0, bool is_weighted = false,
                           std::vector<std::string> logs = {})
      : plan(SmallPlan(verify_every, is_weighted, std::move(logs))) {}

  JobPlan plan;
  std::mutex mutex;  // guards events
  std::vector<std::pair<ComputeTicket, ComputeEvent>> events;
  ProgramComputer computer{plan, {}, [this](ComputeTicket ticket, ComputeEvent event) {
                             std::lock_guard lock(mutex);
                             events.emplace_back(ticket, std::move(event));
                           }};
  std::vector<uint64_t> holds = std::vector<uint64_t>(4);

  // Returns the events that the session may still see, and forgets them.
  std::vector<ComputeEvent> TakeEvents() {
    std::lock_guard lock(mutex);
    std::vector<ComputeEvent> current;
    for (auto& [ticket, event] : events) {
      if (computer.IsCurrent(ticket, event)) current.push_back(std::move(event));
    }
    events.clear();
    return current;
  }
  // The whole version, every float with this value.
  void Arrive(uint64_t version, float value, bool is_evaluation = false) {
    for (uint32_t s = 0; s < plan.shards.shard_count(); ++s) {
      auto floats = std::make_shared<FloatBuffer>(plan.shards.range(ShardId(s)).size());
      std::ranges::fill(floats->span(), value);
      const Blob payload = ToBlob(std::move(floats));
      is_evaluation ? computer.EvaluationParametersArrived(ShardId(s), Version(version), payload)
                    : computer.ParametersArrived(ShardId(s), Version(version), payload);
    }
  }
  std::shared_ptr<const CurrentWork> Next() { return computer.NextWork(Clock::now()); }
  // The first float of the tensor, or −1 where it does not come.
  float Load(size_t tensor) {
    std::vector<float> to(plan.layout.specs()[tensor].size(), -1.0f);
    holds[tensor] = 0;
    const auto outcome = computer.LoadTensor(tensor, to.data(), &holds[tensor], Clock::now());
    return outcome.ok() && *outcome == Outcome::kDone ? to.back() : -1.0f;
  }
  Outcome Give(size_t tensor, float value, double weight = 1) {
    const std::vector<float> values(plan.layout.specs()[tensor].size(), value);
    return *computer.GiveGradient(tensor, values.data(), weight);
  }
  // A micro-batch whose gradients all have this value.
  Outcome ComputeCurrent(float value) {
    for (size_t tensor = 0; tensor < 4; ++tensor) Give(tensor, value);
    const double sums[] = {value, 1};
    return *computer.Finish(sums);
  }
  // By shard and node, the first float of each sum.
  std::map<std::pair<uint32_t, uint32_t>, float> Sums(const std::vector<ComputeEvent>& from) {
    std::map<std::pair<uint32_t, uint32_t>, float> sums;
    for (const ComputeEvent& event : from) {
      if (const auto* ready = std::get_if<GradientReady>(&event)) {
        CHECK(sums.emplace(std::pair(ready->shard.value(), ready->node.value()),
                           ready->payload.floats()[0])
                  .second);
      }
    }
    return sums;
  }
  Heartbeat Times() const {
    Heartbeat heartbeat;
    computer.AddTimes(&heartbeat);
    return heartbeat;
  }
  // The metric tensor of the sum that has it.
  std::vector<float> Metrics(const std::vector<ComputeEvent>& from) {
    const auto last = std::ranges::find_if(from, [&](const ComputeEvent& event) {
      const auto* ready = std::get_if<GradientReady>(&event);
      return ready != nullptr && ready->shard.value() + 1 == plan.shards.shard_count();
    });
    REQUIRE(last != from.end());
    const std::span<const float> floats = std::get<GradientReady>(*last).payload.floats();
    return {floats.end() - TensorLayout::kAlignFloats, floats.end()};
  }
};

template <class E>
size_t Count(const std::vector<ComputeEvent>& events) {
  return static_cast<size_t>(std::ranges::count_if(
      events, [](const ComputeEvent& event) { return std::holds_alternative<E>(event); }));
}

TEST_CASE("micro-batches are summed along the tree and leave shard by shard") {
  ComputerFixture f;
  f.computer.Compute(Step(0), {MicroBatch(0), MicroBatch(1)});
  f.Arrive(0, 5);
  const auto first = f.Next();
  REQUIRE(first != nullptr);
  CHECK(first->samples.size() == 2);
  CHECK(f.Load(1) == 5);
  CHECK(f.ComputeCurrent(1) == Outcome::kDone);
  CHECK(f.TakeEvents().empty());  // the sibling is missing
  REQUIRE(f.Next() != nullptr);
  CHECK(f.ComputeCurrent(2) == Outcome::kDone);
  const std::vector<ComputeEvent> events = f.TakeEvents();
  const auto sums = f.Sums(events);
  REQUIRE(sums.size() == f.plan.shards.shard_count());
  for (const auto& [where, sum] : sums) CHECK(sum == 3);
  CHECK(std::holds_alternative<StepComputed>(events.back()));
  CHECK(f.Next() == nullptr);
}

TEST_CASE("the samples of an epoch's micro-batches are all of the data, each once") {
  ComputerFixture f;
  std::multiset<uint64_t> seen;
  for (uint64_t step = 0; step < 5; ++step) {
    f.computer.Compute(Step(step), {MicroBatch(0), MicroBatch(1), MicroBatch(2), MicroBatch(3)});
    for (int m = 0; m < 4; ++m) {
      const auto guess = f.computer.PeekWork(0);
      const auto work = f.Next();
      REQUIRE(guess);
      CHECK(guess->samples == work->samples);
      seen.insert(work->samples.begin(), work->samples.end());
      f.ComputeCurrent(0);
    }
  }
  CHECK(seen.size() == 40);
  CHECK(std::set(seen.begin(), seen.end()).size() == 40);
}

TEST_CASE("a tensor is copied once per version, and from two versions kept") {
  ComputerFixture f;
  f.computer.Compute(Step(0), {MicroBatch(0)});
  f.Arrive(0, 5);
  f.Next();
  std::vector<float> to(3, 0.0f);
  uint64_t holds = 0;
  CHECK(*f.computer.LoadTensor(0, to.data(), &holds, Clock::now()) == Outcome::kDone);
  CHECK(to[2] == 5);
  to[2] = 9;
  CHECK(*f.computer.LoadTensor(0, to.data(), &holds, Clock::now()) == Outcome::kDone);
  CHECK(to[2] == 9);  // it has that version
  f.Arrive(1, 6);
  CHECK(f.Load(1) == 5);
  f.computer.Compute(Step(1), {MicroBatch(0)});
  f.ComputeCurrent(0);
  f.Next();
  CHECK(*f.computer.LoadTensor(0, to.data(), &holds, Clock::now()) == Outcome::kDone);
  CHECK(to[2] == 6);
}

TEST_CASE("a wait for parameters ends at its deadline, with them, or with the work") {
  ComputerFixture f;
  f.computer.Compute(Step(0), {MicroBatch(0)});
  f.Next();
  float to[3] = {};
  uint64_t holds = 0;
  CHECK(*f.computer.LoadTensor(0, to, &holds, Clock::now()) == Outcome::kAgain);
  const auto later = Clock::now() + std::chrono::minutes(1);
  SUBCASE("with them") {
    std::thread other([&] { f.Arrive(0, 5); });
    CHECK(*f.computer.LoadTensor(0, to, &holds, later) == Outcome::kDone);
    other.join();
  }
  SUBCASE("the work is abandoned") {
    std::thread other([&] { f.computer.Abandon(Step(0)); });
    CHECK(*f.computer.LoadTensor(0, to, &holds, later) == Outcome::kAbandoned);
    other.join();
    CHECK(f.Give(0, 1) == Outcome::kAbandoned);
    CHECK(f.Next() == nullptr);
  }
  SUBCASE("all is forgotten") {
    std::thread other([&] { f.computer.Forget(); });
    CHECK(*f.computer.LoadTensor(0, to, &holds, later) == Outcome::kAbandoned);
    other.join();
    CHECK(f.Next() == nullptr);
  }
  SUBCASE("an evaluation comes first, and the work comes again") {
    std::thread other([&] {
      f.computer.EvaluateSlice({Version(0), 0, 0, 5});
      f.Arrive(0, 5, /*is_evaluation=*/true);
    });
    CHECK(*f.computer.LoadTensor(0, to, &holds, later) == Outcome::kAbandoned);
    other.join();
    CHECK(!f.Next()->is_training());
    CHECK(f.Load(0) == 5);
    const double sums[] = {2.5, 3, -1};
    CHECK(*f.computer.Finish(sums) == Outcome::kDone);
    CHECK(f.Next()->is_training());
  }
}

TEST_CASE("abandoned work hands over nothing more, and its events are stale") {
  ComputerFixture f;
  f.computer.Compute(Step(0), {MicroBatch(0)});
  f.Next();
  CHECK(f.Give(0, 1) == Outcome::kDone);
  CHECK(f.Give(1, 1) == Outcome::kDone);  // whole shards have left
  f.computer.Abandon(Step(0));
  CHECK(f.TakeEvents().empty());
  CHECK(f.Give(2, 1) == Outcome::kAbandoned);
  CHECK(*f.computer.Finish({}) == Outcome::kAbandoned);
}

TEST_CASE("work that is dropped half-way comes again, and no shard is added twice") {
  ComputerFixture f;
  f.computer.Compute(Step(0), {MicroBatch(0)});
  f.Next();
  f.Give(0, 1);
  f.Give(1, 1);
  REQUIRE(f.Next() != nullptr);
  CHECK(f.ComputeCurrent(1) == Outcome::kDone);
  const std::vector<ComputeEvent> events = f.TakeEvents();
  CHECK(f.Sums(events).size() == f.plan.shards.shard_count());  // each once
  CHECK(Count<StepComputed>(events) == 1);
}

TEST_CASE(
    "a verified micro-batch has one hash, by Compute and by Verify, also when it was abandoned") {
  ComputerFixture f(/*verify_every=*/1);
  f.computer.Compute(Step(0), {MicroBatch(0)});
  f.computer.Verify(Step(0), MicroBatch(0));
  f.Next();
  f.Give(0, 1);
  f.Give(1, 1);
  SUBCASE("not abandoned") {}
  SUBCASE("abandoned when it is partly out") { f.computer.Abandon(Step(0)); }
  f.Give(2, 1);
  f.Give(3, 1);
  const double sums[] = {1, 1};
  CHECK(f.computer.Finish(sums).ok());
  f.computer.NextWork(Clock::now());
  CHECK(f.ComputeCurrent(1) == Outcome::kDone);
  std::vector<uint64_t> hashes;
  for (const ComputeEvent& event : f.TakeEvents()) {
    if (const auto* hashed = std::get_if<GradientHashed>(&event)) hashes.push_back(hashed->hash);
  }
  REQUIRE(hashes.size() == 2);
  CHECK(hashes[0] == hashes[1]);
  CHECK(hashes[0] != 0);
}

TEST_CASE("a verification whose version is superseded has no hash") {
  ComputerFixture f(/*verify_every=*/1);
  f.computer.Verify(Step(0), MicroBatch(0));
  f.Next();
  f.Arrive(1, 1);
  f.Arrive(2, 1);
  CHECK(f.Load(0) == -1);
  f.Next();
  const std::vector<ComputeEvent> events = f.TakeEvents();
  REQUIRE(events.size() == 1);
  CHECK(std::get<GradientHashed>(events[0]).hash == 0);
}

TEST_CASE("an evaluation gives named sums, and known ones where the scheduler looks for them") {
  ComputerFixture f;
  f.computer.EvaluateSlice({Version(0), 3, 0, 5});
  CHECK(f.Next() == nullptr);
  f.Arrive(0, 4, /*is_evaluation=*/true);
  const auto work = f.Next();
  REQUIRE(work != nullptr);
  CHECK(work->samples == std::vector<uint64_t>{0, 1, 2, 3, 4});
  CHECK(f.Load(3) == 4);
  const double too_many[] = {1, 6, 0};
  CHECK(Contains(f.computer.Finish(too_many).status().message(), "from 0 to 5"));
  const double too_few[] = {1};
  CHECK(Contains(f.computer.Finish(too_few).status().message(), "eval.sums names 3"));
  const double sums[] = {2.5, 4, -7};
  CHECK(*f.computer.Finish(sums) == Outcome::kDone);
  const std::vector<ComputeEvent> events = f.TakeEvents();
  REQUIRE(events.size() == 1);
  const auto& result = std::get<EvaluationResult>(events[0]);
  CHECK(result.slice == 3);
  CHECK(result.loss_sum == 2.5);
  CHECK(result.correct_count == 4);
  CHECK(result.sums == std::vector<double>{2.5, 4, -7});
}

TEST_CASE("a report has the version and no samples, and its answer may end the run") {
  ComputerFixture f;
  const auto report = [&](uint64_t version) {
    f.computer.EvaluateSlice({Version(version), 1, 5, 5, EvaluationPart::kReport, {1, 2, 3}});
    f.Arrive(version, 4, /*is_evaluation=*/true);
    return f.Next();
  };
  const auto answer = [&] {
    CHECK(*f.computer.Finish({}) == Outcome::kDone);
    const std::vector<ComputeEvent> events = f.TakeEvents();
    REQUIRE(events.size() == 1);
    CHECK(std::get<EvaluationResult>(events[0]).slice == 1);
    CHECK(std::get<EvaluationResult>(events[0]).sample_count == 0);
    return std::get<EvaluationResult>(events[0]).stop_text;
  };
  const auto work = report(2);
  REQUIRE(work != nullptr);
  CHECK(work->is_report());
  CHECK(work->samples.empty());
  CHECK(f.Load(0) == 4);
  CHECK(f.Next() != nullptr);  // it was dropped half-way, so it comes again
  CHECK(answer().empty());
  REQUIRE(report(3) != nullptr);
  CHECK_FALSE(f.computer.StopRun("").ok());
  CHECK(f.computer.StopRun("good enough").ok());
  CHECK(answer() == "good enough");
  f.computer.Compute(Step(0), {MicroBatch(0)});
  REQUIRE(f.Next() != nullptr);
  CHECK(Contains(f.computer.StopRun("x").message(), "only a report"));
}

TEST_CASE("what cannot be a gradient is an error, and the run learns of a divergence") {
  ComputerFixture f;
  f.computer.Compute(Step(0), {MicroBatch(0)});
  f.Next();
  CHECK(Contains(f.computer.GiveGradient(4, nullptr, 1).status().message(), "no tensor 4"));
  f.Give(0, 1);
  CHECK(Contains(f.computer.Finish({}).status().message(), "'bn.running_mean' was not given"));
  std::vector<float> values(5, NAN);
  const Status status = f.computer.GiveGradient(2, values.data(), 1).status();
  CHECK(Contains(status.message(), "'c' is not finite in step 0, micro-batch 0"));
  const std::vector<ComputeEvent> events = f.TakeEvents();
  REQUIRE(!events.empty());
  CHECK(std::get<ComputeFailed>(events.back()).status.code() == StatusCode::kInternal);
}

TEST_CASE("a weighted micro-batch gives its weight, a number from 0 on, and others give none") {
  ComputerFixture f(/*verify_every=*/0, /*is_weighted=*/true);
  f.computer.Compute(Step(0), {MicroBatch(0)});
  f.Next();
  for (size_t tensor = 0; tensor < 4; ++tensor) f.Give(tensor, 1);
  const double sums[] = {2.5, 3, 7};
  const auto refused = [&](std::span<const double> given) {
    return f.computer.Finish(given).status().message();
  };
  CHECK(Contains(refused({sums, 2}), "gave 2 sums"));
  for (const double weight : {-1.0, double{NAN}, 1e39}) {
    const double wrong[] = {2.5, 3, weight};
    CHECK(Contains(refused(wrong), "expected a number from 0 on"));
  }
  CHECK(*f.computer.Finish(sums) == Outcome::kDone);
  CHECK(f.Metrics(f.TakeEvents())[kMetricWeight] == 7);

  ComputerFixture plain;
  plain.computer.Compute(Step(0), {MicroBatch(0)});
  plain.Next();
  CHECK(Contains(plain.computer.Finish(sums).status().message(), "gave 3 sums"));
}

TEST_CASE("a step has no mean of what a micro-batch has not logged") {
  const double logged[] = {2.5, 3, 7};
  const double unlogged[] = {PANDO_NOT_LOGGED, PANDO_NOT_LOGGED, 7};
  for (const bool is_weighted : {false, true}) {
    for (const std::span<const double> sums : {std::span(logged), std::span(unlogged)}) {
      ComputerFixture f(/*verify_every=*/0, is_weighted);
      f.computer.Compute(Step(0), {MicroBatch(0)});
      f.Next();
      for (size_t tensor = 0; tensor < 4; ++tensor) f.Give(tensor, 1);
      CHECK(*f.computer.Finish(sums.first(is_weighted ? 3 : 2)) == Outcome::kDone);
      const std::vector<float> metrics = f.Metrics(f.TakeEvents());
      // The step's mean is over a million times as much.
      const bool is_logged = sums[0] > 0;
      CHECK(std::isnan(LoggedMean(metrics[kMetricLoss] / 7e6F)) != is_logged);
      CHECK(std::isnan(LoggedMean(metrics[kMetricCorrect] / 7e6F)) != is_logged);
      CHECK(metrics[kMetricWeight] == (is_weighted ? 7 : 0));
    }
  }
}

TEST_CASE(
    "the sums that train.logs names follow the metrics' slots, and the weight is the last one") {
  const double sums[] = {2.5, 3, 0.5, PANDO_NOT_LOGGED, 7};
  for (const bool is_weighted : {false, true}) {
    ComputerFixture f(/*verify_every=*/0, is_weighted, {"d_loss", "g_loss"});
    f.computer.Compute(Step(0), {MicroBatch(0)});
    f.Next();
    for (size_t tensor = 0; tensor < 4; ++tensor) f.Give(tensor, 1);
    CHECK(*f.computer.Finish({sums, is_weighted ? 5u : 4u}) == Outcome::kDone);
    const std::vector<float> metrics = f.Metrics(f.TakeEvents());
    CHECK(metrics.at(kMetricSlotCount) == 0.5f);
    CHECK(std::isnan(LoggedMean(metrics.at(kMetricSlotCount + 1) / 7e6F)));
    CHECK(metrics[kMetricWeight] == (is_weighted ? 7 : 0));
  }
}

TEST_CASE("a divergence of abandoned work ends no run") {
  ComputerFixture f(/*verify_every=*/1);
  f.computer.Compute(Step(0), {MicroBatch(0)});
  f.Next();
  f.Give(0, 1);
  f.Give(1, 1);
  f.computer.Abandon(Step(0));  // it is computed to its end, for its hash
  CHECK(f.Give(2, NAN) == Outcome::kAbandoned);
  CHECK(Count<ComputeFailed>(f.TakeEvents()) == 0);
}

TEST_CASE("the time from a micro-batch's hand-out to the first call is a wait for samples") {
  ComputerFixture f;
  f.computer.EvaluateSlice({Version(0), 0, 0, 5});
  f.Arrive(0, 4, /*is_evaluation=*/true);
  f.Next();
  CHECK(f.Times().data_stall_us == 0);  // of evaluations it is not counted
  CHECK(f.Times().samples_wait_ms == 0);
  const double sums[] = {1, 1, 1};
  REQUIRE(f.computer.Finish(sums).ok());
  f.computer.Compute(Step(0), {MicroBatch(0), MicroBatch(1)});
  f.Next();
  while (f.Times().samples_wait_ms < 2) std::this_thread::yield();
  SUBCASE("as the program says") { f.computer.EndReading(); }
  SUBCASE("a parameter") { f.Load(0); }
  SUBCASE("a gradient") { f.Give(0, 1); }
  SUBCASE("work that is not done") {
    f.Next();
    f.computer.EndReading();
  }
  const uint64_t waited = f.Times().data_stall_us;
  CHECK(waited >= 2000);
  CHECK(f.Times().samples_wait_ms == 0);
  f.Give(1, 1);
  CHECK(f.Times().data_stall_us == waited);
}

TEST_CASE("a failure of the program outlives a rollback") {
  ComputerFixture f;
  f.computer.Fail("no such file");
  f.computer.Forget();
  CHECK(f.TakeEvents().empty());
  f.computer.Tidy();
  const std::vector<ComputeEvent> events = f.TakeEvents();
  REQUIRE(events.size() == 1);
  CHECK(std::get<ComputeFailed>(events[0]).status.message() == "no such file");
  f.computer.Tidy();
  CHECK(f.TakeEvents().empty());
}

TEST_CASE("verified work that waits when its generation ends is dropped") {
  ComputerFixture f(/*verify_every=*/1);
  f.computer.Compute(Step(0), {MicroBatch(0)});
  f.Arrive(0, 1);
  f.Next();
  f.Give(0, 1);
  f.Give(1, 1);
  f.computer.Forget();
  CHECK(f.Load(2) == -1);
  CHECK(f.Give(2, 1) == Outcome::kAbandoned);
  CHECK(*f.computer.Finish({}) == Outcome::kAbandoned);
}

TEST_CASE("a slice of a version that is over is not given out again") {
  ComputerFixture f;
  f.computer.EvaluateSlice({Version(0), 0, 0, 5});
  f.computer.EvaluateSlice({Version(0), 1, 0, 5});
  f.Arrive(0, 4, /*is_evaluation=*/true);
  f.Next();
  SUBCASE("its parameters are gone") { f.Arrive(1, 4, /*is_evaluation=*/true); }
  SUBCASE("another version is evaluated") { f.computer.EvaluateSlice({Version(1), 0, 0, 5}); }
  f.computer.Compute(Step(0), {MicroBatch(0)});
  for (int tries = 0; tries < 3; ++tries) {
    const auto work = f.Next();
    REQUIRE(work != nullptr);
    if (work->is_training()) return;
    CHECK(f.Load(0) == -1);
  }
  FAIL("the evaluation comes for ever");
}

TEST_CASE("gradients may come from several threads") {
  ComputerFixture f;
  for (uint64_t step = 0; step < 8; ++step) {
    f.computer.Compute(Step(step), {MicroBatch(0)});
    f.Next();
    std::vector<std::thread> threads;
    for (size_t tensor = 0; tensor < 4; ++tensor)
      threads.emplace_back([&f, tensor] { f.Give(tensor, 1); });
    for (std::thread& thread : threads) thread.join();
    CHECK(*f.computer.Finish({}) == Outcome::kDone);
    const auto sums = f.Sums(f.TakeEvents());
    CHECK(sums.size() == f.plan.shards.shard_count());
  }
}

}  // namespace
}  // namespace pando
