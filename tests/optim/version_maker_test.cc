#include "optim/version_maker.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/combine_all.h"
#include "tests/written_sum.h"

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
  CHECK(ReadSum(partials) == 64.0);
  const std::vector<float> of_metrics = WrittenSum(0);
  const std::vector<float> factors =
      CombineAll(made.maker.partial_plan(), kWeights, {partials, of_metrics});
  made.maker.Make(made.inputs(), {partials, factors}, {made.out, made.state});
  const auto factor = static_cast<float>(2.0 / (8.0 + 1e-6));
  for (const float x : made.out) CHECK(x == 1.0f - 0.5f * (0.25f * factor));
  CHECK(ReadSum(made.maker.StoredPartials(kWeights, made.state)) == 64.0);
}

// The shard of the metrics, with the sum of the step's weights.
std::vector<float> MetricPartials(const VersionMaker& maker, float weight) {
  std::vector<float> metrics(16), state(maker.state_floats(ShardId(1)));
  metrics[kMetricWeight] = weight;
  return maker.MakePartials({.shard = ShardId(1),
                             .step = Step(0),
                             .scalars = kScalars,
                             .parameters = metrics,
                             .state = state,
                             .gradient = metrics});
}

TEST_CASE("a weighted step's mean is over the weights that its micro-batches sum to") {
  struct Case {
    float weight;
    double clip_norm;
    float mean;  // of sums of 8
  };
  const auto factor = static_cast<float>(2.0 / (16.0 + 1e-6));  // norm: 0.5 · √1024 = 16
  for (const auto& [weight, clip_norm, mean] :
       {Case{4.0f, 0, 2.0f}, Case{16.0f, 0, 0.5f}, Case{16.0f, 2.0, 0.5f * factor},
        Case{16.0f, 20.0, 0.5f}, Case{0.0f, 0, 0.0f}, Case{0.0f, 2.0, 0.0f}}) {
    CAPTURE(weight);
    CAPTURE(clip_norm);
    const JobPlan plan = MakePlan({.clip_norm = clip_norm, .is_weighted = true});
    Made made(plan, weight == 0.0f ? 0.0f : 2.0f);
    const std::vector<float> partials = made.maker.MakePartials(made.inputs());
    const std::vector<float> of_metrics = MetricPartials(made.maker, weight);
    const std::vector<float> factors =
        CombineAll(made.maker.partial_plan(), kWeights, {partials, of_metrics});
    made.maker.Make(made.inputs(), {partials, factors}, {made.out, made.state});
    for (const float x : made.out) CHECK(x == 1.0f - 0.5f * mean);
  }
}

TEST_CASE("a weighted step's statistics are means over samples, its metrics over the weights") {
  Job job;
  job.steps = 8;
  job.global_batch = 4;
  job.micro_batches = 2;
  job.optimizer.is_weighted = true;
  const JobPlan plan(
      job, {.train_samples = 4, .test_samples = 10},
      TensorLayout(
          {{.name = "mean", .shape = {16}, .kind = TensorKind::kStatistic, .momentum = 0.5f},
           MetricTensorSpec()}));
  REQUIRE(plan.shards.shard_count() == 1);
  const VersionMaker maker(plan);
  std::vector<float> parameters(32, 1.0f), sums(32, 8.0f), out(32, NAN),
      state(maker.state_floats(kWeights));
  sums[16 + kMetricWeight] = 16.0f;
  const VersionMaker::Inputs inputs{.shard = kWeights,
                                    .step = Step(0),
                                    .scalars = kScalars,
                                    .parameters = parameters,
                                    .state = state,
                                    .gradient = sums};
  const std::vector<float> partials = maker.MakePartials(inputs);
  const std::vector<float> factors = CombineAll(maker.partial_plan(), kWeights, {partials});
  maker.Make(inputs, {partials, factors}, {out, state});
  CHECK(out[0] == 1.0f + 0.5f * (8.0f / 4 - 1.0f));
  CHECK(out[16 + kMetricLoss] == 0.5f);
}

// P2b: a round of many local steps pushes v + (local − v) / momentum, with v of the version that it
// reads, so that the local statistic comes out.
TEST_CASE("with staleness statistics move from those that the step read") {
  Job job;
  job.steps = 8;
  job.staleness = 1;
  const JobPlan plan(
      job, {.train_samples = 400},
      TensorLayout(
          {{.name = "variance", .shape = {16}, .kind = TensorKind::kStatistic, .momentum = 0.25f},
           MetricTensorSpec()}));
  REQUIRE(plan.shards.shard_count() == 1);
  const VersionMaker maker(plan);
  std::vector<float> versions[] = {std::vector<float>(32, 1.0f), {}, {}};
  std::vector<float> state(maker.state_floats(kWeights)), out(32);
  const auto samples = static_cast<float>(plan.steps.SampleCount(Step(0)));
  for (uint64_t step = 0; step < 2; ++step) {
    const float read = versions[plan.steps.VersionReadBy(Step(step)).value()][0];
    const float local = 0.0625f;
    const std::vector<float> sums(32, samples * (read + (local - read) / 0.25f));
    maker.Make({.shard = kWeights,
                .step = Step(step),
                .scalars = kScalars,
                .parameters = versions[step],
                .state = state,
                .gradient = sums},
               {}, {out, state});
    versions[step + 1] = out;
    CHECK(out[0] == local);
    CHECK(maker.EarlierParameters(kWeights, state)[0] == versions[step][0]);
  }
}

}  // namespace
}  // namespace pando
