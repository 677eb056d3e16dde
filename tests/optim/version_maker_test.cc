#include "optim/version_maker.h"

#include <doctest/doctest.h>

#include <cmath>

namespace pando {
namespace {

// Shard 0 holds 1024 weights, shard 1 the metrics. A step has 4 samples.
JobPlan MakePlan(const OptimizerOptions& options) {
  Job job;
  job.steps = 8;
  job.global_batch = 4;
  job.micro_batches = 2;
  job.optimizer = options;
  const DataFacts data{.train_samples = 4, .test_samples = 10};
  return JobPlan(job, data, TensorLayout({{.name = "w", .shape = {1024}}, MetricTensorSpec()}));
}

constexpr ShardId kWeights{0};
constexpr StepScalars kScalars{.lr = 0.5f};

// One shard's version, ready to be made: weights of 1 and a mean gradient of `gradient`.
struct Made {
  Made(const JobPlan& plan, float gradient)
      : maker(plan),
        parameters(1024, 1.0f),
        sums(1024, 4 * gradient),
        state(maker.state_floats(kWeights), 0.0f),
        out(1024, NAN) {}
  VersionMaker::Inputs inputs() const {
    return {.shard = kWeights,
            .step = Step(0),
            .scalars = kScalars,
            .parameters = parameters,
            .state = state,
            .gradient = sums};
  }
  const VersionMaker maker;
  std::vector<float> parameters;
  std::vector<float> sums;
  std::vector<float> state;
  std::vector<float> out;
};

TEST_CASE("SGD takes a step along the mean of the step's samples") {
  const JobPlan plan = MakePlan({});
  Made made(plan, 2.0f);
  CHECK_FALSE(made.maker.has_partials());
  CHECK(made.maker.Combine(kWeights, {})->empty());
  made.maker.Make(made.inputs(), {}, {made.out, made.state});
  for (const float x : made.out) CHECK(x == 1.0f - 0.5f * 2.0f);
}

TEST_CASE("two halves of a root make the same version as their sum") {
  const JobPlan plan = MakePlan({});
  Made made(plan, 0.0f);
  std::vector<float> right(1024, 5.0f);
  made.sums.assign(1024, 3.0f);
  VersionMaker::Inputs inputs = made.inputs();
  inputs.gradient_right = right;
  made.maker.Make(inputs, {}, {made.out, made.state});
  for (const float x : made.out) CHECK(x == 1.0f - 0.5f * 2.0f);
}

TEST_CASE("with clipping a version needs all norms, and keeps its own in its state's tail") {
  const JobPlan plan = MakePlan({.clip_norm = 2.0});
  Made made(plan, 0.25f);  // norm: 0.25 · √1024 = 8
  REQUIRE(made.maker.has_partials());
  const std::vector<float> partials = made.maker.MakePartials(made.inputs());
  REQUIRE(partials.size() == made.maker.partial_count(kWeights));
  CHECK(partials[0] == 8.0f);
  const std::vector<float> of_metrics{0.0f};
  const auto missing = made.maker.Combine(kWeights, [&](ShardId id) -> std::span<const float> {
    return id == kWeights ? partials : std::span<const float>();
  });
  CHECK_FALSE(missing);
  const auto factors = made.maker.Combine(kWeights, [&](ShardId id) -> std::span<const float> {
    return id == kWeights ? partials : of_metrics;
  });
  REQUIRE(factors);
  made.maker.Make(made.inputs(), {partials, *factors}, {made.out, made.state});
  const auto factor = static_cast<float>(2.0 / (8.0 + 1e-6));
  for (const float x : made.out) CHECK(x == 1.0f - 0.5f * (0.25f * factor));
  CHECK(made.maker.StoredPartials(kWeights, made.state)[0] == 8.0f);
}

}  // namespace
}  // namespace pando
