#include "train/trainer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "tests/deadline.h"
#include "tests/train/plain_port.h"
#include "tests/train/trainer_fixture.h"

namespace pando {
namespace {

struct Fixture {
  explicit Fixture(const Job& job, uint32_t thread_count = 2)
      : test(job),
        trainer({test.plan, test.model, test.data, TestDevice()}, ThreadsOnTestDevice(thread_count),
                log.sink()) {}

  void PutVersion(uint64_t version) { PutShards(version, 0, test.plan.shards.shard_count()); }
  void PutShards(uint64_t version, uint32_t first, uint32_t last) {
    SharedBuffer values = test.Parameters(version);
    for (uint32_t s = first; s < last; ++s) {
      trainer.ParametersArrived(ShardId(s), Version(version), ShardBlob(test.plan, values, s));
    }
  }
  void PutEvaluationVersion(uint64_t version) {
    SharedBuffer values = test.Parameters(version);
    for (uint32_t s = 0; s < test.plan.shards.shard_count(); ++s) {
      trainer.EvaluationParametersArrived(ShardId(s), Version(version),
                                          ShardBlob(test.plan, values, s));
    }
  }
  // The gradients of this Compute call's nodes, put together to flat vectors.
  std::map<TreeNode, std::vector<float>> Gradients() {
    log.gradients.clear();
    log.Await<StepComputed>(trainer);
    std::map<TreeNode, std::vector<float>> sums;
    size_t float_count = 0;
    for (const GradientReady& gradient : log.gradients) {
      std::vector<float>& sum = sums[gradient.node];
      sum.resize(test.plan.layout.float_count());
      std::span<const float> floats = gradient.payload.floats();
      std::copy(floats.begin(), floats.end(),
                sum.begin() + test.plan.shards.range(gradient.shard).first);
      float_count += floats.size();
    }
    CHECK(float_count == sums.size() * test.plan.layout.float_count());
    return sums;
  }

  TestJob test;
  EventLog log;
  Trainer trainer;
};

std::vector<float> Add(std::vector<float> left, const std::vector<float>& right) {
  for (size_t i = 0; i < left.size(); ++i) left[i] += right[i];
  return left;
}

TEST_CASE("the gradients emitted are the tree sums of what one network makes by hand") {
  for (uint32_t thread_count : ThreadCounts({1u, 2u, 3u})) {
    Fixture f(TestJob::SmallMlp(), thread_count);
    f.PutVersion(0);
    f.trainer.Compute(Step(0), MicroBatches({0, 1, 3}));
    auto sums = f.Gradients();
    REQUIRE(sums.size() == 2);
    SharedBuffer parameters = f.test.Parameters();
    auto leaf = [&](uint32_t m) {
      return NaiveGradient(f.test, Step(0), MicroBatch(m), *parameters);
    };
    CHECK(sums.at(TreeNode(2)) == Add(leaf(0), leaf(1)));
    CHECK(sums.at(TreeNode(7)) == leaf(3));
  }
}

TEST_CASE("forward waits for parameters that arrive later, shard by shard") {
  Fixture f(TestJob::SmallMlp());
  f.trainer.Compute(Step(0), MicroBatches({0}));
  for (uint32_t s = f.test.plan.shards.shard_count(); s-- > 0;) f.PutShards(0, s, s + 1);
  auto sums = f.Gradients();
  CHECK(sums.begin()->second ==
        NaiveGradient(f.test, Step(0), MicroBatch(0), *f.test.Parameters()));
}

TEST_CASE("work that waits for parameters can be abandoned, and nothing of it is seen") {
  for (int round = 0; round < 100; ++round) {
    Fixture f(TestJob::SmallMlp(), 1 + round % 3);
    f.PutVersion(0);
    f.trainer.Compute(Step(1), MicroBatches({0, 1, 2, 3}));
    f.PutShards(1, 0, 1);
    f.trainer.Abandon(Step(1));
    f.trainer.Compute(Step(0), MicroBatches({2}));
    CHECK(f.Gradients().size() == 1);
    CHECK(f.log.gradients.front().step == Step(0));
  }
}

TEST_CASE("events of an abandoned call that are on their way are stale") {
  Fixture f(TestJob::SmallMlp());
  f.PutVersion(0);
  f.trainer.Compute(Step(0), MicroBatches({0}));
  f.trainer.Abandon(Step(0));
  f.trainer.Compute(Step(0), MicroBatches({1}));
  auto sums = f.Gradients();
  REQUIRE(sums.size() == 1);
  CHECK(sums.contains(f.test.plan.steps.Tree(Step(0)).Leaf(MicroBatch(1))));
}

TEST_CASE(
    "a step computed again, while the next one's parameters arrive, gives the same bits (P12)") {
  Fixture f(TestJob::SmallMlp());
  f.PutVersion(0);
  f.trainer.Compute(Step(0), MicroBatches({0, 1, 2, 3}));
  auto first = f.Gradients();
  f.trainer.Compute(Step(1), MicroBatches({0, 1, 2, 3}));
  f.PutShards(1, 0, 1);
  f.trainer.Abandon(Step(1));
  f.trainer.Compute(Step(0), MicroBatches({0, 1, 2, 3}));
  CHECK(f.Gradients() == first);
  f.PutShards(1, 1, f.test.plan.shards.shard_count());
  f.trainer.Compute(Step(1), MicroBatches({2}));
  CHECK(f.Gradients().begin()->second ==
        NaiveGradient(f.test, Step(1), MicroBatch(2), *f.test.Parameters(1)));
}

TEST_CASE(
    "calls are forgotten once their step is over, whether or not their events are asked about") {
  Fixture f(TestJob::SmallMlp());
  for (uint64_t step : {0, 1, 2}) f.trainer.Compute(Step(step), MicroBatches({0}));
  CHECK_FALSE(f.trainer.IsCurrent(ComputeTicket(1), StepComputed{Step(0)}));
  CHECK(f.trainer.IsCurrent(ComputeTicket(2), StepComputed{Step(1)}));
  CHECK(f.trainer.IsCurrent(ComputeTicket(3), StepComputed{Step(2)}));
}

TEST_CASE("an earlier step is computed before later ones that are in the queue") {
  Fixture f(TestJob::SmallMlp(), 1);
  f.PutVersion(0);
  f.trainer.Compute(Step(0), MicroBatches({0, 1, 2}));
  f.trainer.Compute(Step(1), MicroBatches({0}));  // its parameters never come
  f.trainer.Compute(Step(0), MicroBatches({3}));
  f.log.Await<StepComputed>(f.trainer);
  CHECK(f.log.Await<StepComputed>(f.trainer).step == Step(0));
}

TEST_CASE(
    "evaluation is done while training waits for parameters, alike on any thread count (P31)") {
  std::optional<EvaluationResult> first;
  for (uint32_t thread_count : ThreadCounts({1u, 2u, 3u})) {
    Fixture f(TestJob::SmallMlp(), thread_count);
    f.trainer.Compute(Step(6), MicroBatches({0, 1, 2, 3}));
    f.trainer.EvaluateSlice(
        {.version = Version(5), .slice = 3, .first_sample = 10, .last_sample = 150});
    f.PutEvaluationVersion(5);
    const auto result = f.log.Await<EvaluationResult>(f.trainer);
    CHECK(result.version == Version(5));
    CHECK(result.slice == 3);
    CHECK(result.sample_count == 140);
    CHECK(result.correct_count <= 140);
    CHECK(result.loss_sum > 0);
    if (!first) first = result;
    CHECK(result.loss_sum == first->loss_sum);
    CHECK(result.correct_count == first->correct_count);
    CHECK(result.top5_count == first->top5_count);
    CHECK(result.confusion == first->confusion);
    uint64_t samples = 0, correct = 0;
    for (const ConfusionCount& c : result.confusion) {
      samples += c.count;
      correct += c.label == c.predicted ? c.count : 0;
    }
    CHECK(samples == 140);
    CHECK(correct == result.correct_count);
    CHECK(result.correct_count <= result.top5_count);
    f.PutVersion(6);  // and training goes on
    f.log.Await<StepComputed>(f.trainer);
  }
}

TEST_CASE("slices are evaluated when their version is whole, also an empty one") {
  Fixture f(TestJob::SmallMlp());
  f.PutEvaluationVersion(2);
  f.trainer.EvaluateSlice({.version = Version(2), .slice = 0, .first_sample = 0, .last_sample = 1});
  CHECK(f.log.Await<EvaluationResult>(f.trainer).sample_count == 1);
  f.trainer.EvaluateSlice({.version = Version(2), .slice = 1, .first_sample = 7, .last_sample = 7});
  CHECK(f.log.Await<EvaluationResult>(f.trainer).sample_count == 0);
  f.trainer.EvaluateSlice(
      {.version = Version(3), .slice = 0, .first_sample = 0, .last_sample = 64});
  f.PutEvaluationVersion(3);
  CHECK(f.log.Await<EvaluationResult>(f.trainer).version == Version(3));
}

TEST_CASE("test samples that are not there are a failure that names them") {
  Fixture f(TestJob::SmallMlp());
  f.PutEvaluationVersion(2);
  f.trainer.EvaluateSlice(
      {.version = Version(2), .slice = 0, .first_sample = 149, .last_sample = 151});
  const auto failed = f.log.Await<ComputeFailed>(f.trainer);
  CHECK(failed.status.message().find("[149, 151)") != std::string::npos);
}

TEST_CASE("a loss that is not finite is a failure that names step, micro-batch and a remedy") {
  Fixture f(TestJob::SmallMlp());
  SharedBuffer values = f.test.Parameters();
  values->data()[0] = std::numeric_limits<float>::quiet_NaN();
  for (uint32_t s = 0; s < f.test.plan.shards.shard_count(); ++s) {
    f.trainer.ParametersArrived(ShardId(s), Version(0), ShardBlob(f.test.plan, values, s));
  }
  f.trainer.Compute(Step(0), MicroBatches({1}));
  const std::string text = f.log.Await<ComputeFailed>(f.trainer).status.message();
  CHECK(text.find("step 0, micro-batch 1") != std::string::npos);
  CHECK(text.find("lower learning rate") != std::string::npos);
}

TEST_CASE("a trainer with threads that wait for parameters or for work stops at once") {
  for (int round = 0; round < 50; ++round) {
    Fixture f(TestJob::SmallMlp(), 3);
    f.trainer.Compute(Step(0), MicroBatches({0, 1}));
  }
}

TEST_CASE("work of a superseded version is dropped without an end") {
  Fixture f(TestJob::SmallMlp(), 1);
  f.PutVersion(5);
  f.trainer.Compute(Step(2), MicroBatches({0}));
  f.trainer.Compute(Step(5), MicroBatches({0}));
  CHECK(f.log.Await<StepComputed>(f.trainer).step == Step(5));
}

TEST_CASE("after a new generation nothing of the old one is seen, and versions begin again (P21)") {
  for (int round = 0; round < 50; ++round) {
    Fixture f(TestJob::SmallMlp(), 1 + round % 3);
    f.PutVersion(6);
    f.trainer.Compute(Step(6), MicroBatches({0, 1, 2, 3}));
    f.trainer.Compute(Step(7), MicroBatches({0, 1, 2, 3}));
    f.trainer.Verify(Step(6), MicroBatch(1));
    f.PutShards(7, 0, 1);
    f.PutEvaluationVersion(6);
    f.trainer.EvaluateSlice({.version = Version(6), .first_sample = 0, .last_sample = 150});
    f.trainer.Forget();
    f.PutVersion(2);
    f.trainer.Compute(Step(2), MicroBatches({2}));
    auto sums = f.Gradients();
    REQUIRE(sums.size() == 1);
    CHECK(sums.begin()->second ==
          NaiveGradient(f.test, Step(2), MicroBatch(2), *f.test.Parameters(2)));
    f.trainer.EvaluateSlice({.version = Version(6), .first_sample = 0, .last_sample = 1});
    f.PutEvaluationVersion(6);
    CHECK(f.log.Await<EvaluationResult>(f.trainer).sample_count == 1);
  }
}

TEST_CASE("parameters of a version that an old generation had too are taken again (P21)") {
  Fixture f(TestJob::SmallMlp());
  f.PutVersion(0);
  f.trainer.Forget();
  SharedBuffer values = f.test.Parameters(5);
  for (uint32_t s = 0; s < f.test.plan.shards.shard_count(); ++s)
    f.trainer.ParametersArrived(ShardId(s), Version(0), ShardBlob(f.test.plan, values, s));
  f.trainer.Compute(Step(0), MicroBatches({1}));
  CHECK(f.Gradients().begin()->second == NaiveGradient(f.test, Step(0), MicroBatch(1), *values));
}

// ---- verification (P41) -------------------------------------------------------------------------

Job VerifiedMlp() {
  Job job = TestJob::SmallMlp();
  job.verify_every = 1;
  return job;
}

TEST_CASE("owner and verifier hash one micro-batch alike, on any thread count (P41)") {
  std::optional<uint64_t> first;
  for (uint32_t thread_count : ThreadCounts({1u, 3u})) {
    Fixture owner(VerifiedMlp(), thread_count);
    owner.PutVersion(0);
    owner.trainer.Compute(Step(0), MicroBatches({2, 3}));
    std::map<MicroBatch, uint64_t> hashes;
    for (int i = 0; i < 2; ++i) {
      const auto hashed = owner.log.Await<GradientHashed>(owner.trainer);
      hashes[hashed.micro_batch] = hashed.hash;
    }
    CHECK(owner.log.Await<StepComputed>(owner.trainer).step == Step(0));
    REQUIRE(hashes.size() == 2);
    CHECK(hashes.at(MicroBatch(2)) != hashes.at(MicroBatch(3)));
    Fixture verifier(VerifiedMlp(), thread_count);
    verifier.PutVersion(0);
    verifier.trainer.Verify(Step(0), MicroBatch(2));
    const auto again = verifier.log.Await<GradientHashed>(verifier.trainer);
    CHECK(again.step == Step(0));
    CHECK(again.micro_batch == MicroBatch(2));
    CHECK(again.hash == hashes.at(MicroBatch(2)));
    CHECK(verifier.log.gradients.empty());
    if (!first) first = again.hash;
    CHECK(again.hash == *first);
  }
}

TEST_CASE("without verification nothing is hashed") {
  Fixture f(TestJob::SmallMlp());
  f.PutVersion(0);
  f.trainer.Compute(Step(0), MicroBatches({0, 1, 2, 3}));
  CHECK(f.log.Await<StepComputed>(f.trainer).step == Step(0));
  CHECK(f.log.hashed_count == 0);
}

TEST_CASE("a verification goes on when work of its step is abandoned") {
  Fixture f(VerifiedMlp(), 1);
  f.trainer.Verify(Step(0), MicroBatch(1));
  f.trainer.Compute(Step(0), MicroBatches({0}));
  f.trainer.Abandon(Step(0));
  f.PutVersion(0);
  CHECK(f.log.Await<GradientHashed>(f.trainer).micro_batch == MicroBatch(1));
}

// A shard that has left may count, although its call is abandoned: the hash must tell of it.
TEST_CASE("what is abandoned when shards of it have left is hashed to its end") {
  TestJob test(VerifiedMlp());
  std::promise<void> has_left;
  std::promise<void> is_abandoned;
  std::promise<GradientHashed> hashed;
  std::optional<ComputeTicket> hash_ticket;
  bool is_first = true;
  Trainer trainer({test.plan, test.model, test.data, TestDevice()}, 1,
                  [&](ComputeTicket ticket, const ComputeEvent& event) {
                    if (const auto* hash = std::get_if<GradientHashed>(&event)) {
                      hash_ticket = ticket;
                      hashed.set_value(*hash);
                    } else if (std::exchange(is_first, false)) {
                      has_left.set_value();
                      is_abandoned.get_future().wait_for(kEventDeadline);
                    }
                  });
  SharedBuffer values = test.Parameters(0);
  for (uint32_t s = 0; s < test.plan.shards.shard_count(); ++s)
    trainer.ParametersArrived(ShardId(s), Version(0), ShardBlob(test.plan, values, s));
  trainer.Compute(Step(0), MicroBatches({2}));
  REQUIRE(has_left.get_future().wait_for(kEventDeadline) == std::future_status::ready);
  trainer.Abandon(Step(0));
  is_abandoned.set_value();
  auto result = hashed.get_future();
  REQUIRE(result.wait_for(kEventDeadline) == std::future_status::ready);
  const GradientHashed hash = result.get();
  CHECK(hash.hash != 0);
  CHECK(trainer.IsCurrent(*hash_ticket, hash));
  trainer.Forget();
  CHECK_FALSE(trainer.IsCurrent(*hash_ticket, hash));
}

TEST_CASE("a verification whose parameters are gone reports a hash of 0") {
  Fixture f(VerifiedMlp(), 1);
  f.PutVersion(5);
  f.trainer.Verify(Step(2), MicroBatch(1));
  const auto hashed = f.log.Await<GradientHashed>(f.trainer);
  CHECK(hashed.step == Step(2));
  CHECK(hashed.hash == 0);
}

TEST_CASE(
    "after work is called off, at any time, the work after it has the right bits (P12, P21)") {
  for (uint32_t round = 0; round < 150; ++round) {
    Fixture f(VerifiedMlp(), 1 + round % 3);
    f.PutVersion(0);
    for (uint32_t i = 0; i < 12; ++i) {
      const uint32_t chance = Philox4x32({round, i, 0, 0}, {})[0];
      f.trainer.Compute(Step(0), MicroBatches({0, 3}));
      f.trainer.Compute(Step(1), MicroBatches({0, 1, 2, 3}));
      if (chance % 3 == 0) f.trainer.Verify(Step(0), MicroBatch(chance >> 8 & 3));
      if (chance % 5 == 0) f.PutShards(1, 0, 1 + (chance >> 12) % f.test.plan.shards.shard_count());
      for (uint32_t spin = chance >> 16 & 0xff; spin > 0; --spin) std::this_thread::yield();
      if (chance % 7 == 0) {
        f.trainer.Forget();
        f.PutVersion(0);
      }
      f.trainer.Abandon(Step(chance >> 4 & 1));
    }
    f.trainer.Abandon(Step(0));
    f.trainer.Compute(Step(0), MicroBatches({2}));
    auto sums = f.Gradients();
    REQUIRE(sums.size() == 1);
    CHECK(sums.begin()->second ==
          NaiveGradient(f.test, Step(0), MicroBatch(2), *f.test.Parameters()));
  }
}

// ---- speed --------------------------------------------------------------------------------------

TEST_CASE("the time of a micro-batch is known after the first one, waits left out") {
  Fixture f(TestJob::SmallMlp());
  CHECK(f.trainer.micro_batch_us() == 0);
  f.trainer.Compute(Step(0), MicroBatches({0, 1, 2, 3}));
  f.PutVersion(0);
  f.log.Await<StepComputed>(f.trainer);
  CHECK(f.trainer.micro_batch_us() > 0);
}

// ---- overlap ------------------------------------------------------------------------------------

struct Overlap {
  size_t early_bytes = 0;  // emitted while the first layer's gradient was not made yet
  size_t all_bytes = 0;
};

// Runs one micro-batch into a vector whose first float is a mark that the first layer's backward,
// the last of all, overwrites.
Overlap MeasureOverlap(const TestJob& test) {
  constexpr float kMark = 12345.0f;
  BufferPool gradients(test.plan.layout.float_count());
  float* first_float = gradients.Take()->data();
  *first_float = kMark;
  BatchSource batches(test.data, test.plan.steps, test.job.seed, 0);
  HeldBytes held_bytes;
  ParameterStore parameters(test.plan.shards, {}, held_bytes);
  SharedBuffer values = test.Parameters();
  for (uint32_t s = 0; s < test.plan.shards.shard_count(); ++s) {
    parameters.Put(ShardId(s), Version(0), ShardBlob(test.plan, values, s));
  }
  Overlap overlap;
  TreeSum sum(test.plan.steps.Tree(Step(0)), test.plan.NodesToPush(Step(0), {MicroBatch(0)}),
              test.plan.shards);
  ErrorFeedback feedback(test.plan);
  StepTimeline timeline(nullptr, "");
  Network network(test.model, {.training = 64});
  MicroBatchPass pass(
      network, {},
      {test.plan, batches, parameters, gradients, gradients, gradients, feedback, timeline});
  PlainPort port([&](const GradientReady& ready) {
    overlap.all_bytes += ready.payload.size_bytes();
    if (*first_float == kMark) overlap.early_bytes += ready.payload.size_bytes();
  });
  CHECK(pass.Run({.step = Step(0),
                  .micro_batch = MicroBatch(0),
                  .sum = &sum,
                  .sink = port.sink,
                  .control = port})
            .ok());
  CHECK(overlap.all_bytes == test.plan.layout.float_count() * sizeof(float));
  return overlap;
}

TEST_CASE("mnist-cnn emits gradients before backward ends") {
  const Overlap overlap = MeasureOverlap(TestJob(TestJob::MnistCnn(), {28, 28, 1}));
  MESSAGE("early: " << overlap.early_bytes << " of " << overlap.all_bytes << " bytes");
  CHECK(overlap.early_bytes > 0);
}

TEST_CASE("an MLP of six layers emits at least half its bytes before backward ends") {
  Job job = TestJob::SmallMlp();
  job.mlp_hidden = {128, 128, 128, 128, 128};
  const Overlap overlap = MeasureOverlap(TestJob(job, {16, 16, 1}));
  MESSAGE("early: " << overlap.early_bytes << " of " << overlap.all_bytes << " bytes");
  CHECK(2 * overlap.early_bytes >= overlap.all_bytes);
}

TEST_CASE("every shard becomes ready once, behind the layers that it holds") {
  for (const char* model : {"mnist-cnn", "lenet5", "mlp"}) {
    Job job = TestJob::SmallMlp();
    job.model = model;
    const TestJob test(job, {28, 28, 1});
    const Network network(test.model, 1);
    uint32_t ready_from = MetricShards(test.plan).first;
    uint32_t layers_from = network.layer_count();
    for (const BackwardPart& part : PlanBackwardParts(test.plan, network)) {
      CHECK(part.last + 1 == std::exchange(layers_from, part.first));
      if (part.ready.first == part.ready.last) continue;
      CHECK(part.ready.last == std::exchange(ready_from, part.ready.first));
      CHECK(test.plan.shards.range(ShardId(part.ready.first)).first >=
            test.plan.layout.offset(network.LayerTensors(part.first).first));
    }
    CHECK(layers_from == 0);
    CHECK(ready_from == 0);
  }
}

}  // namespace
}  // namespace pando
