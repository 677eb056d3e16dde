#include "server/optimizer.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace pando {
namespace {

// torch.nn.BatchNorm2d's default `momentum`: the share of the new batch in a running statistic.
constexpr float kStatisticMomentum = 0.1f;

bool KeepsMomentum(const OptimizerOptions& o) {
  return o.kind == OptimizerKind::kSgd && o.momentum != 0.0;
}

// The part of an update that lies in one piece.
struct Slice {
  size_t count = 0;
  const float* parameters = nullptr;
  const float* gradient = nullptr;  // unscaled
  float gradient_scale = 1;
  const float* state[2] = {};
  float* parameters_out = nullptr;
  float* state_out[2] = {};  // may be `state`
};

// Every loop below works element by element, so bits depend neither on how a vector is cut nor on
// the width of the registers. `omp simd` says that no element reads what another one wrote, which
// holds when state_out is state; restrict pointers would not be true then.

void ApplyStatistic(const Slice& s) {
#pragma omp simd
  for (size_t i = 0; i < s.count; ++i) {
    const float batch = s.gradient[i] * s.gradient_scale;
    const float running = s.parameters[i];
    s.parameters_out[i] = running + kStatisticMomentum * (batch - running);
  }
}

void ApplyMetric(const Slice& s) {
#pragma omp simd
  for (size_t i = 0; i < s.count; ++i) s.parameters_out[i] = s.gradient[i] * s.gradient_scale;
}

// What the loops read of options and scalars, each rounded to float once.
struct Coefficients {
  float lr;
  bool couples_decay;  // a test, not a zero factor: g + 0·p would lose the sign of g = −0
  float weight_decay;  // coupled: added to the gradient
  // SGD
  bool is_first_step;
  bool nesterov;
  float momentum;  // and Adam's beta1
  float one_minus_dampening;
  // Adam, AdamW
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float eps;
  float step_size;  // lr / bias_correction1
  float bias_correction2_sqrt;
  float parameter_decay;  // decoupled: factor of the parameter
};

// Products and quotients of scalars are taken in double, as PyTorch does; IEEE 754 makes them exact
// functions of their inputs on every machine, just as float ones (P36).
Coefficients MakeCoefficients(const OptimizerOptions& o, const Optimizer::Update& u) {
  const double lr = u.scalars.lr;
  const bool decouples_decay = o.kind == OptimizerKind::kAdamW;
  return {
      .lr = u.scalars.lr,
      .couples_decay = !decouples_decay && o.weight_decay != 0.0,
      .weight_decay = static_cast<float>(o.weight_decay),
      .is_first_step = u.is_first_step,
      .nesterov = o.nesterov,
      .momentum = u.scalars.momentum,
      .one_minus_dampening = static_cast<float>(1.0 - o.dampening),
      .one_minus_beta1 = 1.0f - u.scalars.momentum,
      .beta2 = static_cast<float>(o.beta2),
      .one_minus_beta2 = static_cast<float>(1.0 - o.beta2),
      .eps = static_cast<float>(o.eps),
      .step_size = static_cast<float>(lr / u.scalars.bias_correction1),
      .bias_correction2_sqrt = u.scalars.bias_correction2_sqrt,
      .parameter_decay = decouples_decay ? static_cast<float>(1.0 - lr * o.weight_decay) : 1.0f,
  };
}

inline float MeanGradient(const Slice& s, const Coefficients& c, size_t i) {
  const float g = s.gradient[i] * s.gradient_scale;
  return c.couples_decay ? g + c.weight_decay * s.parameters[i] : g;
}

// torch.optim.SGD without momentum.
void ApplySgd(const Slice& s, const Coefficients c) {
#pragma omp simd
  for (size_t i = 0; i < s.count; ++i) {
    s.parameters_out[i] = s.parameters[i] - c.lr * MeanGradient(s, c, i);
  }
}

// torch.optim.SGD with momentum: the first buffer is the gradient itself, not damped.
void ApplyMomentum(const Slice& s, const Coefficients c) {
  const float* buffer_in = s.state[0];
  float* buffer_out = s.state_out[0];
#pragma omp simd
  for (size_t i = 0; i < s.count; ++i) {
    const float g = MeanGradient(s, c, i);
    const float moved = c.momentum * buffer_in[i] + c.one_minus_dampening * g;
    const float buffer = c.is_first_step ? g : moved;
    const float direction = c.nesterov ? g + c.momentum * buffer : buffer;
    buffer_out[i] = buffer;
    s.parameters_out[i] = s.parameters[i] - c.lr * direction;
  }
}

// torch.optim.Adam and AdamW (amsgrad off), in the order of their _single_tensor_ functions.
void ApplyAdam(const Slice& s, const Coefficients c) {
  const float* mean_in = s.state[0];    // exp_avg
  const float* square_in = s.state[1];  // exp_avg_sq
  float* mean_out = s.state_out[0];
  float* square_out = s.state_out[1];
#pragma omp simd
  for (size_t i = 0; i < s.count; ++i) {
    const float g = MeanGradient(s, c, i);
    const float mean = c.momentum * mean_in[i] + c.one_minus_beta1 * g;
    const float square = c.beta2 * square_in[i] + c.one_minus_beta2 * g * g;
    const float denominator = std::sqrt(square) / c.bias_correction2_sqrt + c.eps;
    mean_out[i] = mean;
    square_out[i] = square;
    s.parameters_out[i] = c.parameter_decay * s.parameters[i] - c.step_size * mean / denominator;
  }
}

Slice Cut(const Optimizer::Update& u, uint32_t state_count, ShardRange part) {
  const size_t at = part.first - u.range.first;
  Slice s{.count = part.size(),
          .parameters = u.parameters.data() + at,
          .gradient = u.gradient.data() + at,
          .gradient_scale = u.gradient_scale,
          .parameters_out = u.parameters_out.data() + at};
  for (uint32_t k = 0; k < state_count; ++k) {
    s.state[k] = u.state.data() + k * u.range.size() + at;
    s.state_out[k] = u.state_out.data() + k * u.range.size() + at;
  }
  return s;
}

void ZeroState(const Slice& s, uint32_t state_count) {
  for (uint32_t k = 0; k < state_count; ++k) std::fill_n(s.state_out[k], s.count, 0.0f);
}

void ApplyParameter(const OptimizerOptions& o, const Slice& s, const Coefficients& c) {
  if (o.kind != OptimizerKind::kSgd) return ApplyAdam(s, c);
  if (KeepsMomentum(o)) return ApplyMomentum(s, c);
  ApplySgd(s, c);
}

}  // namespace

uint32_t OptimizerStateCount(const OptimizerOptions& options) {
  if (options.kind != OptimizerKind::kSgd) return 2;
  return KeepsMomentum(options) ? 1 : 0;
}

Optimizer::Optimizer(const OptimizerOptions& options, const TensorLayout& layout)
    : options_(options), state_count_(OptimizerStateCount(options)) {
  for (size_t i = 0; i < layout.tensor_count(); ++i) {
    const TensorSpec& spec = layout.specs()[i];
    const ShardRange range{layout.offset(i), layout.offset(i) + spec.size()};
    const bool continues = !pieces_.empty() && pieces_.back().kind == spec.kind &&
                           pieces_.back().range.last == range.first;
    if (continues) {
      pieces_.back().range.last = range.last;
    } else if (range.size() > 0) {
      pieces_.push_back({range, spec.kind});
    }
  }
}

void Optimizer::Apply(const Update& u) const {
  const size_t size = u.range.size();
  PANDO_CHECK(u.parameters.size() == size && u.gradient.size() == size);
  PANDO_CHECK(u.parameters_out.size() == size);
  PANDO_CHECK(u.state.size() == state_count_ * size && u.state_out.size() == u.state.size());

  const Coefficients coefficients = MakeCoefficients(options_, u);
  auto zero = [&](ShardRange padding) {
    const Slice s = Cut(u, state_count_, padding);
    std::fill_n(s.parameters_out, s.count, 0.0f);
    ZeroState(s, state_count_);
  };
  size_t done = u.range.first;  // floats before it are written
  auto ends_before = [](const Piece& piece, size_t x) { return piece.range.last <= x; };
  auto piece = std::lower_bound(pieces_.begin(), pieces_.end(), done, ends_before);
  for (; piece != pieces_.end() && piece->range.first < u.range.last; ++piece) {
    const ShardRange part{std::max(piece->range.first, done),
                          std::min(piece->range.last, u.range.last)};
    zero({done, part.first});
    const Slice s = Cut(u, state_count_, part);
    if (piece->kind == TensorKind::kParameter) {
      ApplyParameter(options_, s, coefficients);
    } else {
      piece->kind == TensorKind::kStatistic ? ApplyStatistic(s) : ApplyMetric(s);
      ZeroState(s, state_count_);
    }
    done = part.last;
  }
  zero({done, u.range.last});
}

}  // namespace pando
