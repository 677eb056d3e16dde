#include "run/serial_trainer.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/train/plain_training.h"
#include "tests/train/trainer_fixture.h"

namespace pando {
namespace {

Result<SerialResult> TrainOnTestDevice(const Job& job, const DataSet& data, const Model& model,
                                       const SerialCallbacks& callbacks) {
  return TrainSerially(job, data, model, callbacks, {}, TestDevice());
}

std::vector<float> Train(const TestJob& test, uint32_t thread_count) {
  Job job = test.job;
  job.threads = thread_count;
  Result<SerialResult> result = TrainOnTestDevice(job, test.data, test.model, {});
  REQUIRE(result.ok());
  CHECK(result->version == test.plan.steps.final_version());
  return {result->parameters->span().begin(), result->parameters->span().end()};
}

std::vector<float> TrainNaively(const TestJob& test) {
  std::vector<float> parameters(test.plan.layout.float_count());
  InitRange(test.plan.layout, test.job.seed, {0, parameters.size()}, parameters);
  return TrainPlainly(test.job, test.data, test.model, std::move(parameters));
}

TEST_CASE("any number of threads trains to the same bits as a plain loop (I5)") {
  for (uint32_t micro_batches : {1u, 3u, 8u}) {
    Job job = TestJob::SmallMlp();
    job.micro_batches = micro_batches;
    job.steps = 12;  // three epochs of four steps, the last of each with 4 samples
    const TestJob test(job);
    const std::vector<float> expected = TrainNaively(test);
    for (uint32_t thread_count : ThreadCounts({1u, 2u, 3u})) {
      for (int round = 0; round < 3; ++round) CHECK(Train(test, thread_count) == expected);
    }
  }
}

TEST_CASE("mnist-cnn, dropout included, trains to the same bits as a plain loop (I5)") {
  Job job = TestJob::MnistCnn();
  job.schedule.kind = ScheduleKind::kOneCycle;
  const TestJob test(job, {28, 28, 1});
  const std::vector<float> expected = TrainNaively(test);
  for (uint32_t thread_count : ThreadCounts({1u, 2u, 3u}))
    CHECK(Train(test, thread_count) == expected);
}

// One micro-batch is a step, and the outer optimizer takes the whole difference.
TEST_CASE("local steps under a plain outer optimizer are steps of the inner one") {
  if (TestDevice().kind != DeviceKind::kCpu) return;
  Job plain = TestJob::SmallMlp();
  plain.micro_batches = 1;
  plain.steps = 3;  // of one epoch, each with 8 samples
  plain.optimizer = {.lr = 0.05, .weight_decay = 0.01};
  Job rounds = plain;
  rounds.global_batch *= 3;
  rounds.steps = 1;
  rounds.local_steps = 3;
  rounds.inner = "type=sgd lr=0.05 weight_decay=0.01";
  rounds.optimizer = {.lr = 1.0};
  const TestJob test(rounds);
  const std::vector<float> expected = TrainNaively(TestJob(plain)), made = Train(test, 1);
  const size_t metrics = test.plan.layout.offset(test.plan.layout.tensor_count() - 1);
  float largest = 0;
  for (size_t i = 0; i < metrics; ++i) largest = std::max(largest, std::abs(made[i] - expected[i]));
  CHECK(largest < 1e-5f);  // each round rounds its difference twice
}

TEST_CASE(
    "rounds are the same bits for any number of threads, and each begins its inner optimizer") {
  if (TestDevice().kind != DeviceKind::kCpu) return;
  Job job = TestJob::MnistCnn();
  job.local_steps = 2;
  job.optimizer = {.lr = 0.7, .momentum = 0.9, .nesterov = true};
  const TestJob test(job, {28, 28, 1});
  const std::vector<float> one = Train(test, 1);
  CHECK(Train(test, 2) == one);
  job.inner = "type=sgd lr=0.001";
  CHECK(Train(TestJob(job, {28, 28, 1}), 1) != one);
}

TEST_CASE("the inner rate rises and falls linearly with the steps of the run") {
  if (TestDevice().kind != DeviceKind::kCpu) return;
  Job job = TestJob::SmallMlp();
  job.local_steps = 2;
  job.optimizer = {.lr = 1.0};
  const auto train = [&](uint64_t steps, const char* inner) {
    job.steps = steps;
    job.inner = inner;
    return Train(TestJob(job), 1);
  };
  CHECK(train(1, "type=sgd lr=0.125 warmup_steps=2") == train(1, "type=sgd lr=0.0625"));
  CHECK(train(1, "type=sgd lr=0.125 end_factor=0.5") == train(1, "type=sgd lr=0.125"));
  CHECK(train(2, "type=sgd lr=0.125 end_factor=0.5") != train(2, "type=sgd lr=0.125"));
}

TEST_CASE("steps and evaluations are reported in order, with means over samples") {
  Job job = TestJob::SmallMlp();
  job.steps = 0;
  job.epochs = 3;
  job.eval_every_epochs = 2;
  job.optimizer.lr = 0.01;
  job.threads = 2;
  const TestJob test(job, {4, 4, 1}, /*train_samples=*/1000);
  std::vector<SerialStep> steps;
  std::vector<EvaluationSummary> evaluations;
  auto result = TrainOnTestDevice(
      job, test.data, test.model,
      {.on_step = [&](const SerialStep& step) { steps.push_back(step); },
       .on_evaluation = [&](const EvaluationSummary& e) { evaluations.push_back(e); }});
  REQUIRE(result.ok());
  REQUIRE(steps.size() == 3 * 32);
  for (size_t i = 0; i < steps.size(); ++i) CHECK(steps[i].metrics.step == Step(i));
  CHECK(std::abs(steps[0].metrics.loss - std::log(10.0f)) < 0.7f);  // an untrained net guesses
  CHECK(steps.back().metrics.loss < steps[0].metrics.loss);
  CHECK(steps.back().metrics.accuracy <= 1.0f);
  REQUIRE(evaluations.size() == 2);
  CHECK(evaluations[0].version == Version(64));
  CHECK(evaluations[1].version == Version(96));
  CHECK(evaluations[1].sample_count == 150);
  CHECK(result->last_evaluation->loss_sum == evaluations[1].loss_sum);
}

TEST_CASE("an early stop ends with the version that decides, and the best one is kept") {
  Job job = TestJob::SmallMlp();
  job.threads = 2;
  job.steps = 40;
  job.epochs = 0;
  job.eval_every_epochs = 0;
  job.eval_every_steps = 3;
  job.optimizer.lr = 1e-6;  // nothing is learnt, so no accuracy is better than the first
  job.early_stop_patience = 2;
  job.snapshot_best = true;
  std::vector<EvaluationSummary> evaluations;
  const TestJob test(job);
  auto result = TrainOnTestDevice(
      job, test.data, test.model,
      {.on_evaluation = [&](const EvaluationSummary& e) { evaluations.push_back(e); }});
  REQUIRE(result.ok());
  const std::optional<Version> stop = StopVersion(job, evaluations);
  REQUIRE(stop.has_value());
  CHECK(result->version == *stop);
  CHECK(*stop < Version(40));
  CHECK(evaluations.back().version == *stop);
  CHECK(result->best_version == BestFirst(job, evaluations).front());
  for (const auto& [version, parameters] :
       {std::pair(result->version, result->parameters),
        std::pair(result->best_version, result->best_parameters)}) {
    Job shorter = job;
    shorter.early_stop_patience = 0;
    shorter.steps = version.value();
    const std::vector<float> expected = Train(TestJob(shorter), 1);
    CHECK(std::equal(expected.begin(), expected.end(), parameters->span().begin()));
  }
}

TEST_CASE("an interrupted run ends with a whole version, the one an uninterrupted run had there") {
  Job job = TestJob::SmallMlp();
  job.threads = 2;
  const TestJob test(job);
  uint64_t step_count = 0;
  auto result = TrainOnTestDevice(job, test.data, test.model,
                                  {.on_step = [&](const SerialStep&) { ++step_count; },
                                   .interrupted = [&] { return step_count == 3; }});
  REQUIRE(result.ok());
  CHECK(result->was_interrupted);
  CHECK(result->version.value() == step_count);
  CHECK(step_count < job.steps);
  job.steps = step_count;
  const std::vector<float> expected = Train(TestJob(job), 1);
  CHECK(std::equal(expected.begin(), expected.end(), result->parameters->span().begin()));
}

TEST_CASE("training that diverges fails with the place and a remedy") {
  Job job = TestJob::SmallMlp();
  job.optimizer = {.kind = OptimizerKind::kSgd, .lr = 1e30};
  job.threads = 2;
  const TestJob test(job);
  auto result = TrainOnTestDevice(job, test.data, test.model, {});
  REQUIRE_FALSE(result.ok());
  CHECK(result.status().message().find("diverged") != std::string::npos);
}

TEST_CASE("gradient memory stays bounded over thousands of steps (I6)") {
  for (uint32_t thread_count : ThreadCounts({1u, 2u})) {
    Job job = TestJob::SmallMlp();
    job.mlp_hidden = {8};
    job.micro_batches = 8;
    job.steps = IsOnGpu() ? 200 : 2000;
    job.threads = thread_count;
    const TestJob test(job);
    auto result = TrainOnTestDevice(job, test.data, test.model, {});
    REQUIRE(result.ok());
    MESSAGE(thread_count << " threads: " << result->gradient_buffers << " gradient buffers");
    CHECK(result->gradient_buffers <=
          thread_count * (3 + 1));  // log2 N + 1 each, docs/protocol.md, section 12
  }
}

}  // namespace
}  // namespace pando
