// The computing side with layer residency: the same bits, from no more parameters than the layer at
// work and the next one of each thread.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/train/trainer_fixture.h"
#include "train/trainer.h"

namespace pando {
namespace {

// A trainer, and a stand-in for the session and its servers that hands over what is wanted.
class LayeredTrainer {
 public:
  LayeredTrainer(const TestJob& test, uint32_t thread_count)
      : test_(test),
        trainer({test.plan, test.model, test.data, TestDevice()}, ThreadsOnTestDevice(thread_count),
                log_.sink(), ParameterResidency::kLayer) {}

  // The next event of this type; what is wanted until then is handed over.
  template <class Event>
  Event Await() {
    while (true) {
      const ComputeEvent event = log_.Next(trainer);
      if (const auto* wanted = std::get_if<ParametersWanted>(&event)) HandOver(*wanted);
      if (auto* expected = std::get_if<Event>(&event)) return *expected;
    }
  }
  void HandOver(const ParametersWanted& wanted) {
    SharedBuffer& values = versions_[wanted.version];
    if (values == nullptr) values = test_.Parameters(wanted.version.value());
    for (ShardId shard : wanted.shards) {
      const Blob blob = ShardBlob(test_.plan, values, shard.value());
      wanted.use == ParameterUse::kTraining
          ? trainer.ParametersArrived(shard, wanted.version, blob)
          : trainer.EvaluationParametersArrived(shard, wanted.version, blob);
    }
  }
  // The gradient of the last Compute call, which computes one micro-batch.
  std::vector<float> Gradient() {
    Await<StepComputed>();
    std::vector<float> flat(test_.plan.layout.float_count());
    for (const GradientReady& gradient : std::exchange(log_.gradients, {})) {
      std::ranges::copy(gradient.payload.floats(),
                        flat.begin() + test_.plan.shards.range(gradient.shard).first);
    }
    return flat;
  }

 private:
  const TestJob& test_;
  std::map<Version, SharedBuffer> versions_;
  EventLog log_;

 public:
  Trainer trainer;  // last: its threads use the above
};

// The bytes of the two layers with the largest shards.
uint64_t TwoLargestLayers(const TestJob& test) {
  const Network network(test.model, 1);
  std::vector<uint64_t> bytes;
  for (const LayerReads& reads : PlanEvaluationReads(test.plan, network)) {
    uint64_t sum = 0;
    for (uint32_t s = reads.now.first; s < reads.now.last; ++s)
      sum += test.plan.shards.range(ShardId(s)).size() * sizeof(float);
    bytes.push_back(sum);
  }
  std::ranges::sort(bytes, std::greater());
  return bytes[0] + bytes[1];
}

Job MakeJob(const char* model) {
  Job job = TestJob::SmallMlp();
  job.model = model;
  job.mlp_hidden = {256, 128, 256, 64, 200};
  return job;
}

TEST_CASE("the gradients are those of a flat vector, from two layers of each thread at most") {
  struct Case {
    const char* model;
    SampleShape shape;
  };
  for (const Case& c : {Case{"mlp", {8, 8, 1}}, Case{"mnist-cnn", {28, 28, 1}},
                        Case{"resnet18-cifar", {8, 8, 1}}}) {
    CAPTURE(c.model);
    if (IsOnGpu() && std::string(c.model) == "resnet18-cifar") continue;  // takes the host a minute
    Job job = MakeJob(c.model);
    job.global_batch = 8;
    const TestJob test(job, c.shape);
    const std::vector<float> expected =
        NaiveGradient(test, Step(1), MicroBatch(2), *test.Parameters(1));
    for (uint32_t thread_count : ThreadCounts({1u, 2u})) {
      LayeredTrainer f(test, thread_count);
      f.trainer.Compute(Step(1), MicroBatches({0, 3}));
      f.Await<StepComputed>();
      f.trainer.Compute(Step(1), MicroBatches({2}));
      CHECK(f.Gradient() == expected);
      const uint64_t peak = f.trainer.parameter_bytes_peak();
      const uint64_t whole = test.plan.layout.float_count() * sizeof(float);
      MESSAGE(c.model << ", " << thread_count << " threads: " << peak << " of " << whole
                      << " bytes at most, the two largest layers are " << TwoLargestLayers(test));
      CHECK(peak <= thread_count * TwoLargestLayers(test));
      if (thread_count == 1) CHECK(peak < whole);
    }
  }
}

TEST_CASE("with activations computed again the bits are the same, from the layers between two") {
  Job job = MakeJob("mlp");
  job.activation_checkpointing = true;
  const TestJob test(job, {8, 8, 1});
  LayeredTrainer f(test, 1);
  f.trainer.Compute(Step(0), MicroBatches({1}));
  CHECK(f.Gradient() == NaiveGradient(test, Step(0), MicroBatch(1), *test.Parameters(0)));
}

TEST_CASE("an evaluation's result is that of whole parameters, layer by layer, with running ones") {
  for (const char* model : {"mlp", "resnet18-cifar"}) {
    if (IsOnGpu() && std::string(model) == "resnet18-cifar") continue;  // takes the host a minute
    const TestJob test(MakeJob(model), {8, 8, 1});
    const Evaluate request{.version = Version(5), .slice = 1, .first_sample = 3, .last_sample = 99};
    EventLog log;
    Trainer whole({test.plan, test.model, test.data, TestDevice()}, 1, log.sink());
    SharedBuffer values = test.Parameters(5);
    for (uint32_t s = 0; s < test.plan.shards.shard_count(); ++s)
      whole.EvaluationParametersArrived(ShardId(s), Version(5), ShardBlob(test.plan, values, s));
    whole.EvaluateSlice(request);
    const auto expected = log.Await<EvaluationResult>(whole);
    for (uint32_t thread_count : ThreadCounts({1u, 2u})) {
      LayeredTrainer f(test, thread_count);
      f.trainer.Compute(Step(6), MicroBatches({0, 1}));
      f.trainer.EvaluateSlice(request);
      const auto result = f.Await<EvaluationResult>();
      CHECK(result.loss_sum == expected.loss_sum);
      CHECK(result.correct_count == expected.correct_count);
      CHECK(result.confusion == expected.confusion);
      CHECK(f.trainer.parameter_bytes_peak() <= thread_count * TwoLargestLayers(test));
      f.trainer.EvaluateSlice({.version = Version(7), .first_sample = 7, .last_sample = 7});
      CHECK(f.Await<EvaluationResult>().sample_count == 0);
    }
  }
}

TEST_CASE("what is wanted and never comes is called off, and the work after it has its bits") {
  const TestJob test(MakeJob("mlp"), {8, 8, 1});
  const std::vector<float> expected =
      NaiveGradient(test, Step(0), MicroBatch(2), *test.Parameters(0));
  for (uint32_t round = 0; round < 60; ++round) {
    LayeredTrainer f(test, 1 + round % 3);
    f.trainer.Compute(Step(0), MicroBatches({0, 1, 3}));
    f.trainer.Compute(Step(1), MicroBatches({0, 1}));
    f.trainer.EvaluateSlice({.version = Version(1), .first_sample = 0, .last_sample = 100});
    for (uint32_t i = 0; i < round % 7; ++i) f.Await<ParametersWanted>();
    if (round % 4 == 0) f.trainer.Forget();
    if (round % 4 != 0) f.trainer.ParametersGone(ParameterUse::kEvaluation, Version(1));
    f.trainer.Abandon(Step(0));
    f.trainer.Compute(Step(0), MicroBatches({2}));
    CHECK(f.Gradient() == expected);
  }
}

TEST_CASE("a trainer whose threads wait for wanted shards stops at once") {
  const TestJob test(MakeJob("mlp"), {8, 8, 1});
  for (uint32_t round = 0; round < 20; ++round) {
    LayeredTrainer f(test, 3);
    f.trainer.Compute(Step(0), MicroBatches({0, 1}));
    f.trainer.EvaluateSlice({.version = Version(0), .first_sample = 0, .last_sample = 10});
    for (uint32_t i = 0; i < round % 4; ++i) f.Await<ParametersWanted>();
  }
}

// A wait of backward, when shards of the gradient have left, ends for nothing but the end.
TEST_CASE("an evaluation waits for a backward that waits for parameters") {
  const TestJob test(MakeJob("mlp"), {8, 8, 1});
  LayeredTrainer f(test, 1);
  f.trainer.Compute(Step(0), MicroBatches({2}));
  f.Await<GradientReady>();
  f.trainer.EvaluateSlice({.version = Version(0), .first_sample = 0, .last_sample = 10});
  CHECK(f.Gradient() == NaiveGradient(test, Step(0), MicroBatch(2), *test.Parameters(0)));
  CHECK(f.Await<EvaluationResult>().sample_count == 10);
}

TEST_CASE("work of a version that is gone is dropped; a verification reports it, others do not") {
  Job job = MakeJob("mlp");
  job.verify_every = 1;
  const TestJob test(job, {8, 8, 1});
  LayeredTrainer f(test, 1);
  f.trainer.Compute(Step(0), MicroBatches({0}));
  f.trainer.Verify(Step(0), MicroBatch(3));
  f.trainer.EvaluateSlice({.version = Version(0), .first_sample = 0, .last_sample = 100});
  f.Await<ParametersWanted>();
  f.trainer.ParametersGone(ParameterUse::kEvaluation, Version(0));
  f.trainer.ParametersGone(ParameterUse::kTraining, Version(0));
  const auto hashed = f.Await<GradientHashed>();
  CHECK(hashed.micro_batch == MicroBatch(3));
  CHECK(hashed.hash == 0);
  f.trainer.Compute(Step(2), MicroBatches({1}));
  CHECK(f.Await<StepComputed>().step == Step(2));
}

TEST_CASE("a verification's hash is that of whole parameters (P41)") {
  Job job = MakeJob("mlp");
  job.verify_every = 1;
  const TestJob test(job, {8, 8, 1});
  LayeredTrainer owner(test, 2);
  owner.trainer.Compute(Step(0), MicroBatches({2}));
  const auto hashed = owner.Await<GradientHashed>();
  LayeredTrainer verifier(test, 1);
  verifier.trainer.Verify(Step(0), MicroBatch(2));
  CHECK(verifier.Await<GradientHashed>().hash == hashed.hash);
}

}  // namespace
}  // namespace pando
