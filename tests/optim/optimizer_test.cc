#include "optim/optimizer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <random>

#include "optim/exact_sum.h"
#include "optim/schedule.h"
#include "optim/version_maker.h"
#include "tests/combine_all.h"
#include "tests/golden/optimizer_goldens.h"
#include "tests/optim/replica.h"

namespace pando {
namespace {

// fp32, 50 updates of parameters of size 1; PyTorch fuses some of the products, we do not.
// Measured 7.2e-7 (momentum with dampening and decay).
constexpr float kTorchTolerance = 2e-6f;

float LargestDifference(const std::vector<float>& ours, const std::vector<float>& expected) {
  float largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(ours[i] - expected[i]));
  }
  return largest;
}

// torch's parameter groups.
TEST_CASE("a tensor with its own rate and decay is updated as if it were trained with them alone") {
  for (OptimizerKind kind :
       {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW, OptimizerKind::kRmsprop,
        OptimizerKind::kAdagrad, OptimizerKind::kAdadelta, OptimizerKind::kNadam}) {
    CAPTURE(EnumName(kind));
    const OptimizerOptions options{.kind = kind, .momentum = 0.5, .weight_decay = 0.01};
    OptimizerOptions alone = options;
    alone.weight_decay = 0.25;
    TensorSpec special = Parameter("b", 32);
    special.lr_factor = 0.5;
    special.weight_decay = 0.25;
    const TensorLayout layout({Parameter("a", 16), special, Parameter("c", 16)});
    const TensorLayout plain({Parameter("a", 16)}), own({Parameter("b", 32)});
    const StepScalars scalars{
        .lr = 0.125f, .momentum = 0.5f, .gradient_factor = 0.5f, .mean_factor = 0.75f};
    StepScalars halved = scalars;
    halved.lr = 0.0625f;
    const Optimizer optimizer(options, layout);
    Replica all(FirstParameters(64), optimizer.state_count());
    Replica a(FirstParameters(16), optimizer.state_count());
    Replica b({all.parameters.begin() + 16, all.parameters.begin() + 48}, optimizer.state_count());
    for (uint64_t step = 0; step < 3; ++step) {
      const std::vector<float> gradient = RootGradient(step, 64, 64);
      all.Apply(optimizer, {0, 64}, gradient, scalars, step == 0);
      a.Apply(Optimizer(options, plain), {0, 16}, {gradient.begin(), gradient.begin() + 16},
              scalars, step == 0);
      b.Apply(Optimizer(alone, own), {0, 32}, {gradient.begin() + 16, gradient.begin() + 48},
              halved, step == 0);
    }
    CHECK(SameBits({all.parameters.begin(), all.parameters.begin() + 16}, a.parameters));
    CHECK(SameBits({all.parameters.begin() + 16, all.parameters.begin() + 48}, b.parameters));
  }
}

// Makes the version after step `step` of a job with these options.
void Advance(Replica* replica, const OptimizerOptions& options, const TensorLayout& layout,
             uint64_t step, const std::vector<float>& gradient) {
  const Optimizer optimizer(options, layout);
  const OptimizerTurns& turns = optimizer.turns();
  replica->Apply(optimizer, {.range = {0, layout.float_count()},
                             .gradient = gradient,
                             .gradient_scale = kGradientScale,
                             .scalars = Schedule(options, {}, 100).At(Step(step)),
                             .is_first_step = turns.StepsBefore(Step(step)) == 0,
                             .is_first_of_run = step == 0,
                             .group = turns.GroupAt(Step(step))});
}

TEST_CASE("groups that train in turns are updated as if each were trained alone in its own steps") {
  OptimizerOptions adam{.kind = OptimizerKind::kAdam, .lr = 0.01, .beta1 = 0.5};
  adam.weight_clip = 0.75;
  const OptimizerOptions sgd{.lr = 0.01, .momentum = 0.9};
  OptimizerOptions both{.lr = 0.01};
  both.groups = {"type=adam beta1=0.5 weight_clip=0.75", "momentum=0.9"};
  both.turns = {0, 0, 1};
  TensorSpec second = Parameter("b", 32);
  second.group = 1;
  const TensorLayout layout({Parameter("a", 16), second});
  const TensorLayout first_alone({Parameter("a", 16)}), second_alone({Parameter("b", 32)});
  Replica all(FirstParameters(48), OptimizerStateCount(both));
  Replica a(FirstParameters(16), OptimizerStateCount(adam));
  Replica b({all.parameters.begin() + 16, all.parameters.end()}, OptimizerStateCount(sgd));
  CHECK(OptimizerStateCount(both) == 2);
  uint64_t steps_of_a = 0, steps_of_b = 0;
  for (uint64_t step = 0; step < 8; ++step) {
    const std::vector<float> gradient = RootGradient(step, 48, 48);
    Advance(&all, both, layout, step, gradient);
    if (step % 3 == 2) {
      Advance(&b, sgd, second_alone, steps_of_b++, {gradient.begin() + 16, gradient.end()});
    } else {
      Advance(&a, adam, first_alone, steps_of_a++, {gradient.begin(), gradient.begin() + 16});
    }
    CHECK(SameBits({all.parameters.begin(), all.parameters.begin() + 16}, a.parameters));
    CHECK(SameBits({all.parameters.begin() + 16, all.parameters.end()}, b.parameters));
  }
  CHECK(std::ranges::max(a.parameters) <= 0.75f);
}

TEST_CASE("averages of groups in turns start as copies, and move in the steps of their group") {
  OptimizerOptions both{.lr = 0.01, .ema_decay = 0.5};
  both.groups = {"", "type=adam"};  // the first has no other state
  both.turns = {0, 1};
  TensorSpec second = Parameter("b", 16);
  second.group = 1;
  const TensorLayout layout(
      {Parameter("a", 16),
       second,
       {.name = "s", .shape = {16}, .kind = TensorKind::kStatistic, .momentum = 0.5f}});
  Replica all(FirstParameters(48), OptimizerStateCount(both));
  REQUIRE(OptimizerStateCount(both) == 3);
  std::vector<float> expected;
  for (uint64_t step = 0; step < 5; ++step) {
    Advance(&all, both, layout, step, RootGradient(step, 48, 48));
    if (step == 0) expected = all.parameters;
    for (size_t i = 0; i < 48; ++i) {
      const bool moves = i >= 32 || (i < 16) == (step % 2 == 0);
      if (step > 0 && moves) expected[i] += 0.5f * (all.parameters[i] - expected[i]);
    }
    const auto average = all.state.begin() + 2 * 48;
    CHECK(SameBits({average, average + 48}, expected));
    CHECK(std::count(all.state.begin(), all.state.begin() + 16, 0.0f) == 16);
  }
}

TEST_CASE("every optimizer follows PyTorch for 50 steps") {
  const OptimizerGoldens goldens = ReadOptimizerGoldens();
  const TensorLayout layout({{.name = "weight", .shape = {1, goldens.size}}});
  const ShardRange whole{0, layout.float_count()};
  for (const OptimizerGoldens::Case& golden : goldens.cases) {
    CAPTURE(golden.name);
    const Optimizer optimizer(golden.optimizer, layout);
    std::vector<float> first = FirstParameters(goldens.size);
    first.resize(whole.size(), 0.0f);
    Replica replica(first, optimizer.state_count());
    replica.state.resize(optimizer.state_floats(whole));
    const PartialPlan partial_plan(golden.optimizer, layout, ShardPlan(layout));
    size_t checkpoint = 0;
    for (uint64_t step = 0; step < goldens.step_count; ++step) {
      replica.Apply(optimizer, whole, RootGradient(step, goldens.size, whole.size()),
                    golden.scalars[step], step == 0, kGradientScale, &partial_plan);
      if (step + 1 != goldens.checkpoints[checkpoint]) continue;
      CAPTURE(step);
      CHECK(LargestDifference(replica.parameters, golden.parameters[checkpoint]) <=
            kTorchTolerance);
      ++checkpoint;
    }
    CHECK(checkpoint == goldens.checkpoints.size());
  }
}

TEST_CASE("state floats per parameter are those of the formula") {
  CHECK(OptimizerStateCount({.kind = OptimizerKind::kSgd}) == 0);
  CHECK(OptimizerStateCount({.kind = OptimizerKind::kSgd, .momentum = 0.9}) == 1);
  CHECK(OptimizerStateCount({.kind = OptimizerKind::kSgd, .momentum = 0.9, .nesterov = true}) == 1);
  CHECK(OptimizerStateCount({.kind = OptimizerKind::kAdam}) == 2);
  CHECK(OptimizerStateCount({.kind = OptimizerKind::kAdamW}) == 2);
  CHECK(OptimizerStateCount({.kind = OptimizerKind::kLars}) == 1);
  CHECK(OptimizerStateCount({.kind = OptimizerKind::kLamb}) == 2);
  CHECK(OptimizerStateCount({.ema_decay = 0.9}) == 1);
  CHECK(OptimizerStateCount({.kind = OptimizerKind::kLamb, .ema_decay = 0.9}) == 3);
  CHECK(OptimizerStateCount({.kind = OptimizerKind::kRmsprop}) == 1);
  CHECK(OptimizerStateCount({.kind = OptimizerKind::kRmsprop, .momentum = 0.9}) == 2);
  CHECK(OptimizerStateCount({.kind = OptimizerKind::kRmsprop, .centered = true}) == 2);
  CHECK(OptimizerStateCount({.kind = OptimizerKind::kRmsprop, .momentum = 0.9, .centered = true}) ==
        3);
  CHECK(OptimizerStateCount({.kind = OptimizerKind::kAdagrad}) == 1);
  CHECK(OptimizerStateCount({.kind = OptimizerKind::kAdadelta, .ema_decay = 0.9}) == 3);
  CHECK(OptimizerStateCount({.kind = OptimizerKind::kNadam}) == 2);
}

TEST_CASE("a variance that rounding makes negative stops no centered update, and NaN stays") {
  const TensorLayout layout({Parameter("weight", 3)});
  const Optimizer optimizer({.kind = OptimizerKind::kRmsprop, .eps = 0.5, .centered = true},
                            layout);
  Replica replica(std::vector<float>(16, 1.0f), optimizer.state_count());
  for (size_t i = 16; i < 32; ++i) replica.state[i] = 100.0f;  // the mean, far above the root
  std::vector<float> gradient(16, 0.0f);
  gradient[0] = 1.0f;
  gradient[1] = NAN;
  replica.Apply(optimizer, {0, 16}, gradient, {.lr = 0.25f}, false, 1.0f);
  CHECK(replica.parameters[0] == 0.5f);  // 1 − 0.25 · 1 / (0 + 0.5)
  CHECK(std::isnan(replica.parameters[1]));
  CHECK(replica.parameters[2] == 1.0f);
}

TEST_CASE("the first momentum is a copy of the gradient, its sign of zero included") {
  const TensorLayout layout({Parameter("weight", 3)});
  const Optimizer optimizer({.momentum = 0.9, .dampening = 0.5}, layout);
  Replica replica(std::vector<float>(16, 1.0f), 1);
  std::vector<float> gradient(16, 0.0f);
  gradient[0] = -0.0f;
  gradient[1] = 3.0f;
  replica.Apply(optimizer, {0, 16}, gradient, {.lr = 0.25f, .momentum = 0.9f}, true, 0.5f);
  CHECK(std::bit_cast<uint32_t>(replica.state[0]) == 0x80000000u);
  CHECK(replica.state[1] == 1.5f);  // not damped
  CHECK(std::bit_cast<uint32_t>(replica.state[2]) == 0u);
  CHECK(replica.parameters[1] == 1.0f - 0.25f * 1.5f);
}

TEST_CASE("bias and norm parameters can be left out of the decay, coupled or not") {
  const auto layout = [](bool is_bias) {
    std::vector<uint64_t> shape{20};
    if (!is_bias) shape.push_back(1);
    return TensorLayout({{.name = "weight", .shape = {4, 5}}, {.name = "bias", .shape = shape}});
  };
  const StepScalars scalars{.lr = 0.1f, .momentum = 0.9f, .bias_correction1 = 0.1f};
  const std::vector<float> gradient = RootGradient(3, 64, 64);
  const auto after_a_step = [&](OptimizerOptions options, const TensorLayout& of) {
    const Optimizer optimizer(options, of);
    Replica replica(FirstParameters(64), optimizer.state_count());
    replica.Apply(optimizer, {0, 64}, gradient, scalars, false);
    return replica.parameters;
  };
  for (OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    OptimizerOptions decays{.kind = kind, .weight_decay = 0.5};
    OptimizerOptions excludes = decays;
    excludes.weight_decay_exclude_bias_and_norm = true;
    const std::vector<float> all = after_a_step(decays, layout(true));
    const std::vector<float> none = after_a_step({.kind = kind}, layout(true));
    std::vector<float> expected = all;
    std::copy_n(none.begin() + 32, 20, expected.begin() + 32);
    CHECK(SameBits(after_a_step(excludes, layout(true)), expected));
    CHECK_FALSE(SameBits(expected, all));
    CHECK(SameBits(after_a_step(excludes, layout(false)), all));  // two dimensions: no bias
  }
}

TEST_CASE("clipping by value keeps signs, zeros' too, and what is not a number") {
  const TensorLayout layout({Parameter("weight", 205)});  // packed, and the rest one by one
  const Optimizer optimizer({.clip_value = 0.5}, layout);
  Replica replica(std::vector<float>(208, 0.0f), 0);
  const std::vector<float> values{7.0f, -7.0f, 0.25f, NAN, -INFINITY};
  std::vector<float> gradient(208, 0.0f);
  for (size_t i = 0; i < 205; ++i) gradient[i] = values[i % 5];
  replica.Apply(optimizer, {0, 208}, gradient, {.lr = 1.0f}, true, 1.0f);
  for (size_t i = 0; i < 205; i += 5) {
    CHECK(replica.parameters[i] == -0.5f);
    CHECK(replica.parameters[i + 1] == 0.5f);
    CHECK(replica.parameters[i + 2] == -0.25f);
    CHECK(std::isnan(replica.parameters[i + 3]));
    CHECK(replica.parameters[i + 4] == 0.5f);
  }
}

TEST_CASE("statistics move by their momentum, metrics are means, both keep no state") {
  const TensorLayout layout(
      {{.name = "a.running_mean", .shape = {16}, .kind = TensorKind::kStatistic},
       {.name = "b.running_mean", .shape = {1}, .kind = TensorKind::kStatistic, .momentum = 0.5f},
       MetricTensorSpec()});
  for (OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    // Decay is of parameters alone.
    const Optimizer optimizer({.kind = kind, .momentum = 0.9, .weight_decay = 0.5}, layout);
    Replica replica(std::vector<float>(48, 8.0f), optimizer.state_count());
    std::ranges::fill(replica.state, 5.0f);
    std::vector<float> gradient(48, 0.0f);
    gradient[15] = gradient[16] = 6.0f;
    gradient[32 + kMetricLoss] = 5.0f;
    gradient[32 + kMetricCorrect] = 3.0f;
    replica.Apply(optimizer, {0, 48}, gradient, {.lr = 0.1f, .momentum = 0.9f}, false, 0.25f);
    CHECK(replica.parameters[15] == 8.0f + 0.1f * (1.5f - 8.0f));
    CHECK(replica.parameters[16] == 8.0f + 0.5f * (1.5f - 8.0f));
    CHECK(replica.parameters[32 + kMetricLoss] == 1.25f);
    CHECK(replica.parameters[32 + kMetricCorrect] == 0.75f);
    CHECK(std::ranges::all_of(replica.state, [](float x) { return x == 0.0f; }));
    for (size_t i : {17, 31, 34, 47}) CHECK(replica.parameters[i] == 0.0f);  // padding
  }
}

// Over any optimizer: what is skipped leaves no trace but in the metrics.
TEST_CASE("with loss scaling a step that overflows is skipped, and the optimizer's steps go on") {
  const TensorLayout layout({{.name = "w", .shape = {4, 8}},
                             {.name = "m", .shape = {3}, .kind = TensorKind::kStatistic},
                             MetricTensorSpec()});
  const ShardRange whole{0, layout.float_count()};
  const size_t metrics = layout.offset(2);
  for (OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW,
                             OptimizerKind::kLars, OptimizerKind::kLamb, OptimizerKind::kRmsprop,
                             OptimizerKind::kAdagrad, OptimizerKind::kAdadelta}) {
    for (double clip_norm : {0.0, 0.5}) {
      if (kind == OptimizerKind::kLamb && clip_norm > 0) continue;  // refused in jobs
      CAPTURE(static_cast<int>(kind));
      const OptimizerOptions options{.kind = kind,
                                     .momentum = 0.9,
                                     .dampening = 0.5,
                                     .lr_decay = 0.25,
                                     .initial_accumulator_value = 0.5,
                                     .clip_norm = clip_norm,
                                     .ema_decay = 0.9,
                                     .loss_scale = {.is_on = true, .hysteresis = 1}};
      const Optimizer optimizer(options, layout);
      const PartialPlan partial_plan(options, layout, ShardPlan(layout));
      const auto train = [&](const std::vector<bool>& overflows) {
        Replica replica(FirstParameters(whole.size()), 0);
        std::fill(replica.parameters.begin() + metrics, replica.parameters.end(), 0.0f);
        replica.state.resize(optimizer.state_floats(whole));
        uint64_t counted = 0;
        for (size_t step = 0; step < overflows.size(); ++step) {
          std::vector<float> gradient = RootGradient(counted, metrics, whole.size());
          if (overflows[step]) gradient[step % 32] = step % 2 == 0 ? INFINITY : NAN;
          if (!overflows[step]) ++counted;
          // The schedule's corrections count all steps, and are not those to be used.
          replica.Apply(optimizer, whole, gradient,
                        {.lr = 0.1f, .momentum = 0.9f, .bias_correction1 = 0.5f}, step == 0,
                        kGradientScale, &partial_plan);
        }
        return replica;
      };
      const Replica smooth = train({false, false, false, false});
      const Replica rough = train({true, false, true, true, false, false, true, false});
      const std::span smooth_values(smooth.parameters), rough_values(rough.parameters);
      CHECK(std::ranges::equal(smooth_values.first(metrics), rough_values.first(metrics)));
      CHECK(SameBits(smooth.state, rough.state));
      CHECK(smooth.parameters[metrics + kMetricLossScale] == 65536);
      CHECK(rough.parameters[metrics + kMetricLossScale] == 65536 / 16);
    }
  }
}

TEST_CASE("with loss scaling and no overflow Adam's steps are those without it") {
  const TensorLayout layout({{.name = "w", .shape = {4, 8}}, MetricTensorSpec()});
  const ShardRange whole{0, layout.float_count()};
  std::vector<std::vector<float>> made;
  for (bool is_on : {false, true}) {
    const OptimizerOptions options{.kind = OptimizerKind::kAdam, .loss_scale = {.is_on = is_on}};
    const Optimizer optimizer(options, layout);
    const PartialPlan partial_plan(options, layout, ShardPlan(layout));
    const auto scalars_at = [](uint64_t step) -> StepScalars {  // as with one-cycle
      const auto count = static_cast<double>(step + 1);
      const auto beta1 = static_cast<float>(0.95 - 0.01 * count);
      return {.lr = 0.01f,
              .momentum = beta1,
              .bias_correction1 = static_cast<float>(1 - std::pow(beta1, count)),
              .bias_correction2_sqrt = static_cast<float>(std::sqrt(1 - std::pow(0.999, count)))};
    };
    Replica replica(FirstParameters(whole.size()), 0);
    replica.state.resize(optimizer.state_floats(whole));
    for (uint64_t step = 0; step < 10; ++step) {
      replica.Apply(optimizer, whole, RootGradient(step, 32, whole.size()), scalars_at(step),
                    step == 0, kGradientScale, &partial_plan);
    }
    made.push_back(replica.parameters);
  }
  for (size_t i = 0; i < 32; ++i) CHECK(made[1][i] == doctest::Approx(made[0][i]).epsilon(1e-6));
}

// Returns the parameters after a few steps with these shards, and the digits of all steps' sums.
// The factors alone would hardly ever show another rounding.
std::vector<float> TrainInShards(const OptimizerOptions& options, const TensorLayout& layout,
                                 const ShardPlan& shards) {
  const Optimizer optimizer(options, layout);
  const PartialPlan partial_plan(options, layout, shards);
  std::vector<float> parameters = FirstParameters(layout.float_count());
  std::vector<std::vector<float>> states, partials(shards.shard_count());
  ExactSum sums;
  for (const ShardRange& range : shards.ranges())
    states.emplace_back(optimizer.state_floats(range), 0.0f);
  std::mt19937 random(9);
  std::normal_distribution<float> values;  // whose squares have no exact sum
  for (uint64_t step = 0; step < 4; ++step) {
    std::vector<float> gradient(layout.float_count());
    for (float& x : gradient) x = values(random) * kSampleCount;
    std::vector<float> made(parameters.size(), NAN);
    std::vector<Optimizer::Update> updates;
    for (uint32_t s = 0; s < shards.shard_count(); ++s) {
      const ShardRange& range = shards.range(ShardId(s));
      const auto part = [&](std::vector<float>& all) {
        return std::span(all).subspan(range.first, range.size());
      };
      updates.push_back({.range = range,
                         .parameters = part(parameters),
                         .gradient = std::span(gradient).subspan(range.first, range.size()),
                         .gradient_scale = kGradientScale,
                         .scalars = {.lr = 0.1f,
                                     .momentum = 0.9f,
                                     .bias_correction1 = 0.5f,
                                     .bias_correction2_sqrt = 0.5f},
                         .is_first_step = step == 0,
                         .state = states[s],
                         .parameters_out = part(made),
                         .state_out = states[s]});
      partials[s].resize(optimizer.partial_count(range));
      optimizer.MakePartials(updates.back(), partials[s]);
      for (size_t at = 0; at + ExactSum::kFloats <= partials[s].size(); at += ExactSum::kFloats)
        sums.AddWritten(std::span(partials[s]).subspan(at, ExactSum::kFloats));
    }
    for (uint32_t s = 0; s < shards.shard_count(); ++s) {
      const std::vector<float> factors = CombineAll(partial_plan, ShardId(s), partials);
      updates[s].factors = factors;
      optimizer.Apply(updates[s]);
    }
    REQUIRE(std::ranges::none_of(made, [](float x) { return std::isnan(x); }));
    parameters = made;
  }
  parameters.resize(parameters.size() + ExactSum::kFloats);
  sums.Write(std::span(parameters).last(ExactSum::kFloats));
  return parameters;
}

TEST_CASE("the cut into shards changes no bit of a norm") {
  const TensorLayout layout({{.name = "a", .shape = {5008, 1}},
                             Parameter("b", 80),
                             {.name = "c", .shape = {40, 75}},
                             Parameter("d", 33),
                             {.name = "e", .shape = {2047, 2}},
                             MetricTensorSpec()});
  for (const OptimizerOptions& options :
       {OptimizerOptions{.momentum = 0.9, .clip_norm = 2.0},
        OptimizerOptions{.kind = OptimizerKind::kAdamW, .clip_norm = 0.5},
        OptimizerOptions{.kind = OptimizerKind::kLars, .momentum = 0.9, .weight_decay = 0.01},
        OptimizerOptions{.kind = OptimizerKind::kLars, .momentum = 0.9, .clip_norm = 1.0},
        OptimizerOptions{.kind = OptimizerKind::kLamb, .weight_decay = 0.01}}) {
    CAPTURE(EnumName(options.kind));
    const size_t whole_bytes = layout.float_count() * sizeof(float);
    const std::vector<float> whole =
        TrainInShards(options, layout, ShardPlan(layout, {.target_bytes = whole_bytes}));
    for (const size_t kib : {4, 8, 12, 20}) {
      CAPTURE(kib);
      const ShardPlan shards(layout, {.target_bytes = kib << 10});
      REQUIRE(shards.shard_count() > 1);
      CHECK(SameBits(TrainInShards(options, layout, shards), whole));
    }
  }
}

TEST_CASE("the average starts as a copy and follows weights and statistics, not metrics") {
  const TensorLayout layout({Parameter("w", 1),
                             {.name = "mean", .shape = {1}, .kind = TensorKind::kStatistic},
                             MetricTensorSpec()});
  for (OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdamW}) {
    const Optimizer optimizer({.kind = kind, .ema_decay = 0.75}, layout);
    Replica replica(std::vector<float>(48, 1.0f), optimizer.state_count());
    const float* average = replica.state.data() + (optimizer.state_count() - 1) * 48;
    const std::vector<float> gradient(48, 1.0f);
    const StepScalars scalars{.lr = 0.5f, .momentum = 0.9f};
    replica.Apply(optimizer, {0, 48}, gradient, scalars, true, 1.0f);
    for (size_t i : {0, 16}) CHECK(average[i] == replica.parameters[i]);
    const float first[2] = {replica.parameters[0], replica.parameters[16]};
    replica.Apply(optimizer, {0, 48}, gradient, scalars, false, 1.0f);
    CHECK(average[0] == first[0] + 0.25f * (replica.parameters[0] - first[0]));
    CHECK(average[16] == first[1] + 0.25f * (replica.parameters[16] - first[1]));
    for (size_t i : {1, 15, 17, 32, 33, 47}) CHECK(average[i] == 0.0f);
  }
}

TEST_CASE("the average of weights that do not move is those weights, for ever") {
  const TensorLayout layout({Parameter("w", 3), MetricTensorSpec()});
  const Optimizer optimizer({.ema_decay = 0.99999}, layout);
  Replica replica(std::vector<float>(48, 0.3f), optimizer.state_count());
  const std::vector<float> gradient(48, 0.0f);
  const StepScalars scalars{.lr = 0.5f};
  replica.Apply(optimizer, {0, 48}, gradient, scalars, true, 1.0f);
  for (int step = 1; step < 10'000; ++step)
    replica.Apply(optimizer, {0, 48}, gradient, scalars, false, 1.0f);
  for (size_t i : {0, 1, 2}) CHECK(replica.state[i] == 0.3f);
}

}  // namespace
}  // namespace pando
