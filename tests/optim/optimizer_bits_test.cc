#include <doctest/doctest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "optim/optimizer.h"
#include "tests/cpu_levels.h"
#include "tests/optim/replica.h"

namespace pando {
namespace {

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
