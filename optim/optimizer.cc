#include "optim/optimizer.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>

#include "common/check.h"
#include "plan/loss_scale.h"

namespace pando {
namespace {

bool KeepsMomentum(const OptimizerOptions& o) {
  return o.kind == OptimizerKind::kLars || (o.kind == OptimizerKind::kSgd && o.momentum != 0.0);
}

bool HasTrustRatios(const OptimizerOptions& o) {
  return o.kind == OptimizerKind::kLars || o.kind == OptimizerKind::kLamb;
}

constexpr uint32_t kStatesMax = 3;  // Adam's two, and the average of the weights

// The part of an update within one piece.
struct Slice {
  size_t count = 0;
  const float* parameters = nullptr;
  const float* gradient = nullptr;  // unscaled
  float gradient_scale = 1;
  const float* state[kStatesMax] = {};
  float* parameters_out = nullptr;
  float* state_out[kStatesMax] = {};  // may be `state`
};

// Every loop below works element by element, so bits do not depend on how a vector is cut or on the
// width of registers. `omp simd` says that no element reads what another one wrote. That holds when
// state_out is state, for which restrict pointers would be wrong.

// torch.nn.BatchNorm2d's running statistics.
void ApplyStatistic(const Slice& s, float momentum) {
#pragma omp simd
  for (size_t i = 0; i < s.count; ++i) {
    const float batch = s.gradient[i] * s.gradient_scale;
    const float running = s.parameters[i];
    s.parameters_out[i] = running + momentum * (batch - running);
  }
}

void ApplyMetric(const Slice& s) {
#pragma omp simd
  for (size_t i = 0; i < s.count; ++i) s.parameters_out[i] = s.gradient[i] * s.gradient_scale;
}

// The values that the loops read from options and scalars, each rounded to float once. Products and
// quotients of scalars are computed in double, as in PyTorch. IEEE 754 makes them exact functions
// of their inputs on every machine, like the float ones (P36).
struct Coefficients {
  const OptimizerOptions& o;
  const Optimizer::Update& u;
  const double exact_lr = u.scalars.lr;
  const bool decouples_decay = o.kind == OptimizerKind::kAdamW || o.kind == OptimizerKind::kLamb;

  float lr = u.scalars.lr;
  // A test, not a zero factor: g + 0·p would lose the sign of g = −0.
  bool couples_decay = !decouples_decay && o.weight_decay != 0.0;
  // Coupled: added to the gradient; LAMB: to the direction.
  float weight_decay = static_cast<float>(o.weight_decay);
  float clip_value = o.clip_value > 0.0 ? static_cast<float>(o.clip_value) : INFINITY;
  float gradient_factor = u.factors.empty() ? 1.0f : u.factors[0];  // clipping by norm
  float ratio = 1.0f;                                               // LARS, LAMB: trust ratio
  // SGD
  bool is_first_step = u.is_first_step;
  bool nesterov = o.nesterov;
  float momentum = u.scalars.momentum;  // and Adam's beta1
  float one_minus_dampening = static_cast<float>(1.0 - o.dampening);
  // Adam, AdamW
  float one_minus_beta1 = 1.0f - u.scalars.momentum;
  float beta2 = static_cast<float>(o.beta2);
  float one_minus_beta2 = static_cast<float>(1.0 - o.beta2);
  float eps = static_cast<float>(o.eps);
  float step_size = static_cast<float>(exact_lr / u.scalars.bias_correction1);
  float bias_correction1 = u.scalars.bias_correction1;
  float bias_correction2_sqrt = u.scalars.bias_correction2_sqrt;
  // Decoupled: factor of the parameter.
  float parameter_decay =
      decouples_decay ? static_cast<float>(1.0 - exact_lr * o.weight_decay) : 1.0f;
};

// torch.nn.utils.clip_grad_value_; NaN stays NaN.
inline float Clip(float g, float limit) {
  const float below = g > limit ? limit : g;
  return below < -limit ? -limit : below;
}

inline float MeanGradient(const Slice& s, const Coefficients& c, size_t i) {
  const float g = Clip(s.gradient[i] * s.gradient_scale, c.clip_value) * c.gradient_factor;
  return c.couples_decay ? g + c.weight_decay * s.parameters[i] : g;
}

// torch.optim.SGD without momentum.
void ApplySgd(const Slice& s, const Coefficients c) {
#pragma omp simd
  for (size_t i = 0; i < s.count; ++i) {
    s.parameters_out[i] = s.parameters[i] - c.lr * MeanGradient(s, c, i);
  }
}

// torch.optim.SGD with momentum: the first buffer is the gradient itself, without dampening.
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

// LARS, algorithm 1: the step's rate is part of the momentum.
void ApplyLars(const Slice& s, const Coefficients c) {
  const float* buffer_in = s.state[0];
  float* buffer_out = s.state_out[0];
  const float rate = c.lr * c.ratio;
#pragma omp simd
  for (size_t i = 0; i < s.count; ++i) {
    const float step = rate * MeanGradient(s, c, i);
    const float moved = c.momentum * buffer_in[i] + step;
    const float buffer = c.is_first_step ? step : moved;
    buffer_out[i] = buffer;
    s.parameters_out[i] = s.parameters[i] - buffer;
  }
}

struct LambStep {
  float mean;
  float square;
  float direction;  // r + λw
};

inline LambStep MakeLambStep(const Slice& s, const Coefficients& c, size_t i) {
  const float g = MeanGradient(s, c, i);
  const float mean = c.momentum * s.state[0][i] + c.one_minus_beta1 * g;
  const float square = c.beta2 * s.state[1][i] + c.one_minus_beta2 * g * g;
  const float denominator = std::sqrt(square) / c.bias_correction2_sqrt + c.eps;
  const float r = mean / c.bias_correction1 / denominator;
  return {mean, square, r + c.weight_decay * s.parameters[i]};
}

// LAMB, algorithm 2.
void ApplyLamb(const Slice& s, const Coefficients c) {
  float* mean_out = s.state_out[0];
  float* square_out = s.state_out[1];
  const float rate = c.lr * c.ratio;
#pragma omp simd
  for (size_t i = 0; i < s.count; ++i) {
    const LambStep step = MakeLambStep(s, c, i);
    mean_out[i] = step.mean;
    square_out[i] = step.square;
    s.parameters_out[i] = s.parameters[i] - rate * step.direction;
  }
}

// The sum of element(i) for i < count: sixteen partial sums, for any register width.
template <class Element>
double SumOfSquares(size_t count, Element element) {
  constexpr size_t kSums = 16;
  double sums[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= count; i += kSums) {
#pragma omp simd
    for (size_t k = 0; k < kSums; ++k) {
      const auto x = static_cast<double>(element(i + k));
      sums[k] += x * x;
    }
  }
  for (size_t k = 0; i + k < count; ++k) {
    const auto x = static_cast<double>(element(i + k));
    sums[k] += x * x;
  }
  for (size_t half = kSums / 2; half > 0; half /= 2) {
    for (size_t k = 0; k < half; ++k) sums[k] += sums[k + half];
  }
  return sums[0];
}

double GradientSquares(const Slice& s, const Coefficients& c) {
  return SumOfSquares(s.count, [&](size_t i) { return MeanGradient(s, c, i); });
}

Slice Cut(const Optimizer::Update& u, uint32_t state_count, ShardRange part) {
  const size_t at = part.first - u.range.first;
  const bool is_written = !u.parameters_out.empty();
  Slice s{.count = part.size(),
          .parameters = u.parameters.data() + at,
          .gradient = u.gradient.data() + at,
          .gradient_scale = u.gradient_scale,
          .parameters_out = is_written ? u.parameters_out.data() + at : nullptr};
  for (uint32_t k = 0; k < state_count; ++k) {
    const size_t of_state = k * u.range.size() + at;
    s.state[k] = u.state.data() + of_state;
    s.state_out[k] = is_written ? u.state_out.data() + of_state : nullptr;
  }
  return s;
}

// torch.optim.swa_utils.AveragedModel with buffers and the usual avg_fn: the first average is a
// copy.
void ApplyAverage(const Slice& s, uint32_t slot, double decay, bool is_first_step) {
  const auto added = static_cast<float>(1.0 - decay);
  const float* average_in = s.state[slot];
  float* average_out = s.state_out[slot];
#pragma omp simd
  for (size_t i = 0; i < s.count; ++i) {
    const float made = s.parameters_out[i];
    const float moved = average_in[i] + added * (made - average_in[i]);
    average_out[i] = is_first_step ? made : moved;
  }
}

void ZeroState(const Slice& s, uint32_t state_count) {
  for (uint32_t k = 0; k < state_count; ++k) std::fill_n(s.state_out[k], s.count, 0.0f);
}

void ApplyParameter(const OptimizerOptions& o, const Slice& s, const Coefficients& c) {
  if (o.kind == OptimizerKind::kLars) return ApplyLars(s, c);
  if (o.kind == OptimizerKind::kLamb) return ApplyLamb(s, c);
  if (o.kind != OptimizerKind::kSgd) return ApplyAdam(s, c);
  if (KeepsMomentum(o)) return ApplyMomentum(s, c);
  ApplySgd(s, c);
}

}  // namespace

uint32_t OptimizerStateCount(const OptimizerOptions& options) {
  const uint32_t average = options.ema_decay > 0.0 ? 1 : 0;
  if (KeepsMomentum(options)) return 1 + average;
  return (options.kind == OptimizerKind::kSgd ? 0 : 2) + average;
}

bool IsAdapted(const OptimizerOptions& options, const TensorSpec& spec) {
  return HasTrustRatios(options) && spec.kind == TensorKind::kParameter && spec.shape.size() > 1 &&
         spec.size() > 0;
}

Optimizer::Optimizer(const OptimizerOptions& options, const TensorLayout& layout)
    : options_(options), state_count_(OptimizerStateCount(options)) {
  for (size_t i = 0; i < layout.tensor_count(); ++i) {
    const TensorSpec& spec = layout.specs()[i];
    const Piece piece = MakePiece(spec, {layout.offset(i), layout.offset(i) + spec.size()});
    const bool continues = !pieces_.empty() && pieces_.back().IsLike(piece) &&
                           pieces_.back().range.last == piece.range.first;
    if (continues) {
      pieces_.back().range.last = piece.range.last;
    } else if (piece.range.size() > 0) {
      pieces_.push_back(piece);
    }
  }
}

Optimizer::Piece Optimizer::MakePiece(const TensorSpec& spec, ShardRange range) const {
  Piece piece{.range = range, .kind = spec.kind};
  const bool is_bias_or_norm = spec.shape.size() <= 1;
  const bool excludes = options_.weight_decay_exclude_bias_and_norm || HasTrustRatios(options_);
  if (spec.kind == TensorKind::kParameter) piece.decays = !(is_bias_or_norm && excludes);
  piece.is_adapted = IsAdapted(options_, spec);
  if (spec.kind == TensorKind::kStatistic) piece.momentum = spec.momentum;
  return piece;
}

template <class Visit>
void Optimizer::VisitParts(ShardRange range, Visit visit) const {
  auto ends_before = [](const Piece& piece, size_t x) { return piece.range.last <= x; };
  auto piece = std::lower_bound(pieces_.begin(), pieces_.end(), range.first, ends_before);
  for (; piece != pieces_.end() && piece->range.first < range.last; ++piece) {
    visit(*piece, ShardRange{std::max(piece->range.first, range.first),
                             std::min(piece->range.last, range.last)});
  }
}

// ---- partial values -----------------------------------------------------------------------------

size_t Optimizer::factor_count(ShardRange range) const {
  if (!has_partials()) return 0;
  size_t count = skips_overflows() ? 2 : 1;
  VisitParts(range, [&](const Piece& piece, ShardRange) { count += piece.is_adapted ? 1 : 0; });
  return count;
}

size_t Optimizer::partial_count(ShardRange range) const {
  const size_t factors = factor_count(range);
  if (factors == 0) return 0;
  const size_t of_all = skips_overflows() ? 2 : 1;  // the others belong to trust ratios
  return of_all + 2 * (factors - of_all);
}

void Optimizer::MakePartials(const Update& u, std::span<float> partials) const {
  PANDO_CHECK(has_partials() && partials.size() == partial_count(u.range));
  PANDO_CHECK(u.factors.empty());
  const Update counted = Counted(u);
  Coefficients c{options_, counted};
  c.couples_decay = false;
  double gradient_squares = 0;
  size_t at = 1;
  VisitParts(u.range, [&](const Piece& piece, ShardRange part) {
    if (piece.kind != TensorKind::kParameter) return;
    const Slice s = Cut(u, state_count_, part);
    const bool is_lamb = options_.kind == OptimizerKind::kLamb;
    const double of_gradient = options_.clip_norm > 0.0 || !is_lamb ? GradientSquares(s, c) : 0.0;
    if (options_.clip_norm > 0.0) gradient_squares += of_gradient;
    if (!piece.is_adapted) return;
    const double of_update =
        is_lamb ? SumOfSquares(s.count, [&](size_t i) { return MakeLambStep(s, c, i).direction; })
                : of_gradient;
    partials[at++] = static_cast<float>(
        std::sqrt(SumOfSquares(s.count, [&](size_t i) { return s.parameters[i]; })));
    partials[at++] = static_cast<float>(std::sqrt(of_update));
  });
  partials[0] = static_cast<float>(std::sqrt(gradient_squares));
  if (!skips_overflows()) return;
  const bool is_finite =
      std::ranges::all_of(u.gradient, [](float g) { return std::abs(g) <= FLT_MAX; });
  partials.back() = is_finite ? 1.0f : 0.0f;
}

// ---- loss scaling -------------------------------------------------------------------------------

namespace {

// By squaring: × alone (P36).
double Power(double base, uint64_t exponent) {
  double power = 1;
  for (; exponent > 0; exponent /= 2, base *= base) {
    if (exponent % 2 == 1) power *= base;
  }
  return power;
}

}  // namespace

// With loss scaling the optimizer counts only steps that were not skipped. The corrections are
// those of optim/schedule.cc, with the step's beta1.
Optimizer::Update Optimizer::Counted(const Update& u) const {
  Update counted = u;
  if (!skips_overflows()) return counted;
  const auto steps = static_cast<uint64_t>(u.state[StepCountAt(u.range)]);
  counted.is_first_step = steps == 0;
  const bool is_adaptive = state_count_ - (options_.ema_decay > 0.0 ? 1 : 0) == 2;
  if (!is_adaptive) return counted;
  counted.scalars.bias_correction1 = static_cast<float>(1 - Power(u.scalars.momentum, steps + 1));
  counted.scalars.bias_correction2_sqrt =
      static_cast<float>(std::sqrt(1 - Power(options_.beta2, steps + 1)));
  return counted;
}

void Optimizer::Skip(const Update& u) const {
  std::ranges::copy(u.parameters, u.parameters_out.begin());
  const size_t kept = StepCountAt(u.range) + 1;
  if (u.state.data() != u.state_out.data()) {
    std::copy_n(u.state.begin(), kept, u.state_out.begin());
  }
  const bool begins_average = options_.ema_decay > 0.0 && u.state[StepCountAt(u.range)] == 0;
  VisitParts(u.range, [&](const Piece& piece, ShardRange part) {
    const Slice s = Cut(u, state_count_, part);
    if (piece.kind != TensorKind::kMetric) {
      if (begins_average) std::copy_n(s.parameters, s.count, s.state_out[state_count_ - 1]);
      return;
    }
    ApplyMetric(s);
    MoveLossScale(u, part);
  });
}

void Optimizer::MoveLossScale(const Update& u, ShardRange metrics) const {
  const size_t at = metrics.first - u.range.first;
  const LossScale now =
      ReadLossScale(options_.loss_scale, u.parameters.subspan(at, metrics.size()));
  const LossScale next = NextLossScale(options_.loss_scale, now, IsSkipped(u));
  u.parameters_out[at + kMetricLossScale] = next.scale;
  u.parameters_out[at + kMetricGoodSteps] = next.good_steps;
  u.parameters_out[at + kMetricHysteresis] = next.hysteresis;
}

// ---- the update ---------------------------------------------------------------------------------

// A block's sum stays in the fastest cache until the update has read it, and is never written to
// memory. Adding first would move a third more.
template <class Visit>
void Optimizer::VisitSlices(const Update& u, ShardRange part, Visit visit) const {
  if (u.gradient_right.empty()) return visit(Cut(u, state_count_, part));
  constexpr size_t kBlockFloats = 2048;
  alignas(64) std::array<float, kBlockFloats> sum;
  for (size_t first = part.first; first < part.last; first += kBlockFloats) {
    Slice s = Cut(u, state_count_, {first, std::min(part.last, first + kBlockFloats)});
    const float* right = u.gradient_right.data() + (first - u.range.first);
#pragma omp simd
    for (size_t i = 0; i < s.count; ++i) sum[i] = s.gradient[i] + right[i];
    s.gradient = sum.data();
    visit(s);
  }
}

void Optimizer::Apply(const Update& u) const {
  const size_t size = u.range.size();
  PANDO_CHECK(u.parameters.size() == size && u.gradient.size() == size);
  PANDO_CHECK(u.parameters_out.size() == size);
  PANDO_CHECK(u.state.size() == state_floats(u.range) && u.state_out.size() == u.state.size());
  PANDO_CHECK(u.factors.size() == factor_count(u.range));
  PANDO_CHECK(u.gradient_right.empty() || (u.gradient_right.size() == size && !has_partials()));
  if (IsSkipped(u)) return Skip(u);

  const Update counted = Counted(u);
  const Coefficients decaying{options_, counted};
  Coefficients excluded = decaying;
  excluded.couples_decay = false;
  excluded.parameter_decay = 1.0f;
  excluded.weight_decay = 0.0f;
  auto zero = [&](ShardRange padding) {
    const Slice s = Cut(u, state_count_, padding);
    std::fill_n(s.parameters_out, s.count, 0.0f);
    ZeroState(s, state_count_);
  };
  const bool averages = options_.ema_decay > 0.0;
  size_t done = u.range.first;  // floats before it are done
  size_t adapted_count = 0;
  VisitParts(u.range, [&](const Piece& piece, ShardRange part) {
    zero({done, part.first});
    Coefficients c = piece.decays ? decaying : excluded;
    if (piece.is_adapted) c.ratio = u.factors[++adapted_count];
    VisitSlices(u, part, [&](const Slice& s) {
      if (piece.kind == TensorKind::kParameter) {
        ApplyParameter(options_, s, c);
      } else {
        piece.kind == TensorKind::kStatistic ? ApplyStatistic(s, piece.momentum) : ApplyMetric(s);
        const bool is_averaged = averages && piece.kind == TensorKind::kStatistic;
        ZeroState(s, state_count_ - (is_averaged ? 1 : 0));
      }
      if (averages && piece.kind != TensorKind::kMetric)
        ApplyAverage(s, state_count_ - 1, options_.ema_decay, counted.is_first_step);
    });
    if (piece.kind == TensorKind::kMetric && skips_overflows()) MoveLossScale(u, part);
    done = part.last;
  });
  zero({done, u.range.last});
  if (skips_overflows()) u.state_out[StepCountAt(u.range)] = u.state[StepCountAt(u.range)] + 1;
}

}  // namespace pando
