// A replica of one shard's floats, and the gradients of make_optimizer_goldens.py, for the tests of
// the optimizer.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "optim/optimizer.h"
#include "optim/partial_plan.h"
#include "tests/combine_all.h"

namespace pando {

inline constexpr float kSampleCount = 128;  // a power of two: sums and means are then exact
inline constexpr float kGradientScale = 1 / kSampleCount;

inline TensorSpec Parameter(std::string name, uint64_t size) {
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
    Apply(optimizer,
          {.range = range,
           .gradient = gradient,
           .gradient_scale = gradient_scale,
           .scalars = scalars,
           .is_first_step = is_first_step},
          partial_plan);
  }

  // Applies the update to this replica's floats.
  void Apply(const Optimizer& optimizer, Optimizer::Update update,
             const PartialPlan* partial_plan = nullptr) {
    const ShardRange range = update.range;
    std::vector<float> made(parameters.size(), NAN);  // Apply must write every float
    update.parameters = parameters;
    update.state = state;
    update.state_out = state;
    update.parameters_out = made;
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
inline std::vector<float> FirstParameters(size_t size) {
  std::vector<float> p(size);
  for (size_t i = 0; i < size; ++i) p[i] = (static_cast<float>(i * 29 % 17) - 8) / 8;
  return p;
}

inline float GradientAt(uint64_t step, size_t i) {
  return std::ldexp((static_cast<float>((step * 37 + i * 61 + 13) % 101) - 50) / 64,
                    static_cast<int>(i % 7) - 3);
}

// Padded to `float_count`, and summed over the samples as the tree's root is.
inline std::vector<float> RootGradient(uint64_t step, size_t size, size_t float_count) {
  std::vector<float> g(float_count, 0.0f);
  for (size_t i = 0; i < size; ++i) g[i] = GradientAt(step, i) * kSampleCount;
  return g;
}

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(a, b, {}, std::bit_cast<uint32_t, float>,
                            std::bit_cast<uint32_t, float>);
}

}  // namespace pando
