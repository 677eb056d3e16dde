#include "optim/optimizer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <random>

#include "optim/exact_sum.h"
#include "optim/version_maker.h"
#include "tests/combine_all.h"
#include "tests/cpu_levels.h"
#include "tests/golden/optimizer_goldens.h"

namespace pando {
namespace {

// fp32, 50 updates of parameters of size 1; PyTorch fuses some of the products, we do not.
// Measured 7.2e-7 (momentum with dampening and decay).
constexpr float kTorchTolerance = 2e-6f;

constexpr float kSampleCount = 128;  // a power of two: sums and means are then exact
constexpr float kGradientScale = 1 / kSampleCount;

TensorSpec Parameter(std::string name, uint64_t size) {
  return {.name = std::move(name), .shape = {size}};
}

// One replica of one shard's floats, in the memory that a server has for them.
struct Replica {
  std::vector<float> parameters;
  std::vector<float> state;
  Replica(std::vector<float> first, uint32_t state_count)
      : parameters(std::move(first)), state(state_count * parameters.size(), 0.0f) {}

  void Apply(const Optimizer& optimizer, ShardRange range, const std::vector<float>& gradient,
             StepScalars scalars, bool is_first_step, float gradient_scale = kGradientScale,
             const PartialPlan* partial_plan = nullptr) {
    std::vector<float> made(parameters.size(), NAN);  // Apply must write every float
    Optimizer::Update update{.range = range,
                             .parameters = parameters,
                             .gradient = gradient,
                             .gradient_scale = gradient_scale,
                             .scalars = scalars,
                             .is_first_step = is_first_step,
                             .state = state,
                             .parameters_out = made,
                             .state_out = state};
    std::vector<float> factors;
    if (partial_plan != nullptr && optimizer.has_partials()) {  // the range is one shard
      std::vector<float> partials(optimizer.partial_count(range));
      optimizer.MakePartials(update, partials);
      factors = CombineAll(*partial_plan, ShardId(0), {partials});
      update.factors = factors;
    }
    optimizer.Apply(update);
    parameters = made;
  }
};

// As in make_optimizer_goldens.py.
std::vector<float> FirstParameters(size_t size) {
  std::vector<float> p(size);
  for (size_t i = 0; i < size; ++i) p[i] = (static_cast<float>(i * 29 % 17) - 8) / 8;
  return p;
}

float GradientAt(uint64_t step, size_t i) {
  return std::ldexp((static_cast<float>((step * 37 + i * 61 + 13) % 101) - 50) / 64,
                    static_cast<int>(i % 7) - 3);
}

// Padded to `float_count`, and summed over the samples as the tree's root is.
std::vector<float> RootGradient(uint64_t step, size_t size, size_t float_count) {
  std::vector<float> g(float_count, 0.0f);
  for (size_t i = 0; i < size; ++i) g[i] = GradientAt(step, i) * kSampleCount;
  return g;
}

float LargestDifference(const std::vector<float>& ours, const std::vector<float>& expected) {
  float largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(ours[i] - expected[i]));
  }
  return largest;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(a, b, {}, std::bit_cast<uint32_t, float>,
                            std::bit_cast<uint32_t, float>);
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

constexpr StepScalars kMixedScalars{.lr = 0.1f,
                                    .momentum = 0.9f,
                                    .bias_correction1 = 0.1f,
                                    .bias_correction2_sqrt = 0.3f,
                                    .gradient_factor = 0.7f,
                                    .mean_factor = 0.9f};

// Every kind of tensor, sizes around the line of 16 floats, and padding between them.
TensorLayout MixedLayout() {
  return TensorLayout({Parameter("a", 1),
                       Parameter("b", 16),
                       Parameter("c", 33),
                       {.name = "mean", .shape = {7}, .kind = TensorKind::kStatistic},
                       Parameter("empty", 0),
                       Parameter("d", 300),  // of more than two blocks
                       MetricTensorSpec()});
}

// The floats [cut[k], cut[k + 1]) each as a separate shard for three steps, then put together.
Replica TrainCut(const Optimizer& optimizer, const TensorLayout& layout,
                 const std::vector<size_t>& cuts) {
  const size_t all = layout.float_count();
  const uint32_t state_count = optimizer.state_count();
  Replica whole(std::vector<float>(all), state_count);
  for (size_t k = 0; k + 1 < cuts.size(); ++k) {
    const ShardRange range{cuts[k], cuts[k + 1]};
    Replica part(FirstParameters(range.size()), state_count);
    for (size_t i = 0; i < range.size(); ++i)
      part.parameters[i] = FirstParameters(all)[range.first + i];
    for (uint64_t step = 0; step < 3; ++step) {
      const std::vector<float> root = RootGradient(step, all, all);
      const std::vector<float> gradient(root.begin() + range.first, root.begin() + range.last);
      part.Apply(optimizer, range, gradient, kMixedScalars, step == 0, 1.0f / 3);
    }
    std::ranges::copy(part.parameters, whole.parameters.begin() + range.first);
    for (uint32_t s = 0; s < state_count; ++s) {
      std::copy_n(part.state.begin() + s * range.size(), range.size(),
                  whole.state.begin() + s * all + range.first);
    }
  }
  return whole;
}

TEST_CASE("bits do not depend on how the flat vector is cut") {
  const TensorLayout layout = MixedLayout();
  const size_t all = layout.float_count();
  std::vector<size_t> lines, floats;
  for (size_t i = 0; i <= all; i += 16) lines.push_back(i);
  for (size_t i = 0; i <= all; ++i) floats.push_back(i);
  for (const OptimizerOptions& options :
       {OptimizerOptions{.weight_decay = 0.1}, OptimizerOptions{.momentum = 0.9},
        OptimizerOptions{.momentum = 0.9, .nesterov = true, .weight_decay = 0.1},
        OptimizerOptions{.kind = OptimizerKind::kAdam, .weight_decay = 0.1, .ema_decay = 0.9},
        OptimizerOptions{.kind = OptimizerKind::kAdamW, .weight_decay = 0.1, .clip_value = 0.1},
        OptimizerOptions{.kind = OptimizerKind::kRmsprop, .momentum = 0.9, .centered = true},
        OptimizerOptions{.kind = OptimizerKind::kAdagrad, .initial_accumulator_value = 0.1},
        OptimizerOptions{.kind = OptimizerKind::kAdadelta, .weight_decay = 0.1},
        OptimizerOptions{.kind = OptimizerKind::kNadam, .weight_decay = 0.1}}) {
    const Optimizer optimizer(options, layout);
    const Replica whole = TrainCut(optimizer, layout, {0, all});
    for (const std::vector<size_t>& cuts : {std::vector<size_t>{0, 32, 48, all}, lines, floats}) {
      const Replica cut = TrainCut(optimizer, layout, cuts);
      CHECK(SameBits(cut.parameters, whole.parameters));
      CHECK(SameBits(cut.state, whole.state));
    }
  }
}

TEST_CASE("bits do not depend on the CPU level, of partial values neither (P36)") {
  const TensorLayout layout = MixedLayout();
  const ShardPlan one_shard(layout);
  const size_t all = layout.float_count();
  for (const OptimizerOptions& options :
       {OptimizerOptions{.momentum = 0.9, .clip_norm = 0.5},
        OptimizerOptions{.kind = OptimizerKind::kAdam, .weight_decay = 0.1, .ema_decay = 0.9},
        OptimizerOptions{.kind = OptimizerKind::kLamb, .weight_decay = 0.1},
        OptimizerOptions{.kind = OptimizerKind::kRmsprop, .momentum = 0.9, .centered = true},
        OptimizerOptions{.kind = OptimizerKind::kAdagrad, .weight_decay = 0.1},
        OptimizerOptions{.kind = OptimizerKind::kAdadelta, .weight_decay = 0.1},
        OptimizerOptions{
            .kind = OptimizerKind::kNadam, .weight_decay = 0.1, .decoupled_weight_decay = true}}) {
    CAPTURE(EnumName(options.kind));
    const Optimizer optimizer(options, layout);
    const PartialPlan partial_plan(options, layout, one_shard);
    std::vector<Replica> made;
    AtEachCpuLevel([&] {
      Replica replica(FirstParameters(all), optimizer.state_count());
      replica.state.resize(optimizer.state_floats({0, all}));
      for (uint64_t step = 0; step < 3; ++step) {
        replica.Apply(optimizer, {0, all}, RootGradient(step, all, all), kMixedScalars, step == 0,
                      1.0f / 3, &partial_plan);
      }
      made.push_back(std::move(replica));
    });
    for (const Replica& replica : made) {
      CHECK(SameBits(replica.parameters, made.front().parameters));
      CHECK(SameBits(replica.state, made.front().state));
    }
  }
}

TEST_CASE("a gradient in two halves makes the same bits as their sum") {
  const TensorLayout layout({Parameter("large", 5000),  // of more than a block
                             {.name = "mean", .shape = {7}, .kind = TensorKind::kStatistic},
                             Parameter("small", 100),
                             MetricTensorSpec()});
  const size_t size = layout.float_count();
  const std::vector<float> left = RootGradient(1, size, size), right = RootGradient(2, size, size);
  std::vector<float> sum(size);
  std::ranges::transform(left, right, sum.begin(), std::plus());
  for (const OptimizerOptions& options :
       {OptimizerOptions{.weight_decay = 0.1}, OptimizerOptions{.momentum = 0.9},
        OptimizerOptions{.kind = OptimizerKind::kAdam, .weight_decay = 0.1, .ema_decay = 0.9}}) {
    const Optimizer optimizer(options, layout);
    const std::vector<float> parameters = FirstParameters(size);
    const auto made = [&](std::span<const float> gradient, std::span<const float> gradient_right) {
      Replica after(std::vector<float>(size, NAN), optimizer.state_count());
      std::ranges::fill(after.state, 0.25f);
      optimizer.Apply({.range = {0, size},
                       .parameters = parameters,
                       .gradient = gradient,
                       .gradient_right = gradient_right,
                       .gradient_scale = 1.0f / 3,
                       .scalars = {.lr = 0.1f,
                                   .momentum = 0.9f,
                                   .bias_correction1 = 0.1f,
                                   .bias_correction2_sqrt = 0.3f},
                       .state = after.state,
                       .parameters_out = after.parameters,
                       .state_out = after.state});
      return after;
    };
    const Replica of_sum = made(sum, {}), of_halves = made(left, right);
    CHECK(SameBits(of_halves.parameters, of_sum.parameters));
    CHECK(SameBits(of_halves.state, of_sum.state));
  }
}

TEST_CASE("state may be updated in place or into other memory, with the same bits") {
  const TensorLayout layout({Parameter("weight", 45)});
  const Optimizer optimizer({.kind = OptimizerKind::kAdam}, layout);
  const size_t size = layout.float_count();
  const StepScalars scalars{.lr = 0.1f, .momentum = 0.9f, .bias_correction1 = 0.19f};
  Replica in_place(FirstParameters(size), 2);
  std::ranges::fill(in_place.state, 0.5f);
  const std::vector<float> state = in_place.state;
  const std::vector<float> parameters = in_place.parameters;
  const std::vector<float> gradient = RootGradient(1, 45, size);
  in_place.Apply(optimizer, {0, size}, gradient, scalars, false);

  std::vector<float> parameters_out(size, NAN);
  std::vector<float> state_out(2 * size, NAN);
  optimizer.Apply({.range = {0, size},
                   .parameters = parameters,
                   .gradient = gradient,
                   .gradient_scale = kGradientScale,
                   .scalars = scalars,
                   .is_first_step = false,
                   .state = state,
                   .parameters_out = parameters_out,
                   .state_out = state_out});
  CHECK(SameBits(parameters_out, in_place.parameters));
  CHECK(SameBits(state_out, in_place.state));
}

TEST_CASE("a range of padding alone and an empty range are no trouble") {
  const TensorLayout layout({Parameter("weight", 17)});
  const Optimizer optimizer({.momentum = 0.9}, layout);
  Replica padding(std::vector<float>(8, 7.0f), 1);
  std::ranges::fill(padding.state, 7.0f);
  padding.Apply(optimizer, {24, 32}, std::vector<float>(8, 7.0f), {.lr = 1}, false);
  CHECK(padding.parameters == std::vector<float>(8, 0.0f));
  CHECK(padding.state == std::vector<float>(8, 0.0f));
  Replica empty({}, 1);
  empty.Apply(optimizer, {16, 16}, {}, {.lr = 1}, true);
  CHECK(empty.parameters.empty());
}

}  // namespace
}  // namespace pando
