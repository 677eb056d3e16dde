// The formulas of all optimizers, for a block of floats at a time. Optimizer calls them, compiled
// for each CPU level. Threads: any; without state.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "optim/optimizer.h"
#include "optim/slice.h"

namespace pando {

inline bool KeepsMomentum(const OptimizerOptions& o) {
  const bool is_optional = o.kind == OptimizerKind::kSgd || o.kind == OptimizerKind::kRmsprop;
  return o.kind == OptimizerKind::kLars || (is_optional && o.momentum != 0.0);
}

inline bool DecouplesDecay(const OptimizerOptions& o) {
  return o.kind == OptimizerKind::kAdamW || o.kind == OptimizerKind::kLamb ||
         (o.kind == OptimizerKind::kNadam && o.decoupled_weight_decay);
}

// Returns the share that a mean of squares keeps at each step.
inline double KeptShare(const OptimizerOptions& o) {
  if (o.kind == OptimizerKind::kRmsprop) return o.alpha;
  return o.kind == OptimizerKind::kAdadelta ? o.rho : o.beta2;
}

inline bool HasTrustRatios(const OptimizerOptions& o) {
  return o.kind == OptimizerKind::kLars || o.kind == OptimizerKind::kLamb;
}

// Updates running statistics as torch.nn.BatchNorm2d does, from those that the step read: a round
// of local steps, or a layer that runs several times, moves exactly these (P2b).
void ApplyStatistic(const auto& s, float momentum) {
  s.parameters_out() = s.read() + momentum * (s.MeanStatistic() - s.read());
}

void ApplyMetric(const auto& s) { s.parameters_out() = s.MeanGradient(); }

// Coefficients are the values that expressions read, from options and scalars, each rounded to
// float once. Products and quotients of scalars are computed in double, as in PyTorch. IEEE 754
// makes them exact functions of their inputs on every machine, like the float ones (P36).
struct Coefficients {
  const OptimizerOptions& o;
  const Optimizer::Update& u;
  const double exact_lr = u.scalars.lr;
  const bool decouples_decay = DecouplesDecay(o);

  float lr = u.scalars.lr;
  // This is a test, not a zero factor, because g + 0·p would lose the sign of g = −0.
  bool couples_decay = !decouples_decay && o.weight_decay != 0.0;
  // If the decay is coupled, it is added to the gradient; with LAMB to the direction.
  float weight_decay = static_cast<float>(o.weight_decay);
  float clip_value = o.clip_value > 0.0 ? static_cast<float>(o.clip_value) : INFINITY;
  float gradient_factor = u.factors.empty() ? 1.0f : u.factors[0];  // clipping by norm
  float ratio = 1.0f;                                               // LARS, LAMB: trust ratio
  // SGD
  bool is_first_step = u.is_first_step;
  bool nesterov = o.nesterov;
  float momentum = u.scalars.momentum;  // and Adam's beta1; RMSprop
  float one_minus_dampening = static_cast<float>(1.0 - o.dampening);
  // Adam, AdamW; the others have some of these
  float one_minus_beta1 = 1.0f - u.scalars.momentum;
  float beta2 = static_cast<float>(KeptShare(o));
  float one_minus_beta2 = static_cast<float>(1.0 - KeptShare(o));
  float eps = static_cast<float>(o.eps);
  float step_size = static_cast<float>(exact_lr / u.scalars.bias_correction1);
  float bias_correction1 = u.scalars.bias_correction1;
  float bias_correction2_sqrt = u.scalars.bias_correction2_sqrt;
  // NAdam
  float gradient_step = static_cast<float>(exact_lr * u.scalars.gradient_factor);
  float mean_step = static_cast<float>(exact_lr * u.scalars.mean_factor);
  // Adagrad
  float added_sum = is_first_step ? static_cast<float>(o.initial_accumulator_value) : 0.0f;
  // If the decay is decoupled, this is the factor of the parameter.
  float parameter_decay =
      decouples_decay ? static_cast<float>(1.0 - exact_lr * o.weight_decay) : 1.0f;
};

// Calls use(g) with an expression of the gradient, clipped and, if decay is coupled, decayed.
template <int kSize, class Use>
void WithGradient(const Slice<kSize>& s, const Coefficients& c, Use use) {
  // torch's clip_grad_value_. Like std::min and std::max, Eigen's keep a NaN on their left.
  const auto clipped = s.MeanGradient().min(c.clip_value).max(-c.clip_value);
  const auto g = clipped * c.gradient_factor;
  c.couples_decay ? use(g + c.weight_decay * s.parameters()) : use(g);
}

// Applies torch.optim.SGD without momentum.
void ApplySgd(const auto& s, const Coefficients& c, const auto& g) {
  s.parameters_out() = s.parameters() - c.lr * g;
}

// Applies torch.optim.SGD with momentum: the first buffer is the gradient itself, without
// dampening.
void ApplyMomentum(const auto& s, const Coefficients& c, const auto& g) {
  auto buffer = s.state_out(0);
  if (c.is_first_step) {
    buffer = g;
  } else {
    buffer = c.momentum * s.state(0) + c.one_minus_dampening * g;
  }
  if (c.nesterov) {
    s.parameters_out() = s.parameters() - c.lr * (g + c.momentum * buffer);
  } else {
    s.parameters_out() = s.parameters() - c.lr * buffer;
  }
}

// Returns the square roots. The compiler vectorises this loop; Eigen packs no correctly rounded
// roots.
template <class Array>
auto SquareRoots(const Array& x) {
  Block<Array::SizeAtCompileTime> root(x.size());
#pragma omp simd
  for (Eigen::Index i = 0; i < x.size(); ++i) root[i] = std::sqrt(x[i]);
  return root;
}

// Applies torch.optim.Adam or AdamW (amsgrad off), in the order of their _single_tensor_ functions.
void ApplyAdam(const auto& s, const Coefficients& c, const auto& g) {
  auto mean = s.state_out(0);    // exp_avg
  auto square = s.state_out(1);  // exp_avg_sq
  mean = c.momentum * s.state(0) + c.one_minus_beta1 * g;
  square = c.beta2 * s.state(1) + c.one_minus_beta2 * g * g;
  const auto root = SquareRoots(square);
  s.parameters_out() = c.parameter_decay * s.parameters() -
                       c.step_size * mean / (root / c.bias_correction2_sqrt + c.eps);
}

// Applies torch.optim.NAdam.
void ApplyNadam(const auto& s, const Coefficients& c, const auto& g) {
  auto mean = s.state_out(0), square = s.state_out(1);
  mean = c.momentum * s.state(0) + c.one_minus_beta1 * g;
  square = c.beta2 * s.state(1) + c.one_minus_beta2 * g * g;
  const auto root = SquareRoots(square);
  s.parameters_out() =
      c.parameter_decay * s.parameters() -
      (c.gradient_step * g + c.mean_step * mean) / (root / c.bias_correction2_sqrt + c.eps);
}

// Applies torch.optim.RMSprop. If rounding makes a variance negative, its root is zero here and not
// a number in torch.
template <int kSize>
void ApplyRmsprop(const OptimizerOptions& o, const Slice<kSize>& s, const Coefficients& c,
                  const auto& g) {
  auto square = s.state_out(0);
  square = c.beta2 * s.state(0) + c.one_minus_beta2 * g * g;
  Block<kSize> variance = square;
  if (o.centered) {
    auto mean = s.state_out(1);
    mean = c.beta2 * s.state(1) + c.one_minus_beta2 * g;
    variance = (square - mean * mean).max(0.0f);
  }
  const Block<kSize> direction = g / (SquareRoots(variance) + c.eps);
  if (!KeepsMomentum(o)) {
    s.parameters_out() = s.parameters() - c.lr * direction;
    return;
  }
  const uint32_t slot = o.centered ? 2 : 1;
  auto buffer = s.state_out(slot);
  buffer = c.momentum * s.state(slot) + direction;
  s.parameters_out() = s.parameters() - c.lr * buffer;
}

// Applies torch.optim.Adagrad. The step size has the decay of the rate.
void ApplyAdagrad(const auto& s, const Coefficients& c, const auto& g) {
  auto sum = s.state_out(0);
  sum = s.state(0) + c.added_sum + g * g;
  s.parameters_out() = s.parameters() - c.step_size * g / (SquareRoots(sum) + c.eps);
}

// Applies torch.optim.Adadelta.
template <int kSize>
void ApplyAdadelta(const Slice<kSize>& s, const Coefficients& c, const auto& g) {
  auto square = s.state_out(0), deltas = s.state_out(1);
  square = c.beta2 * s.state(0) + c.one_minus_beta2 * g * g;
  const Block<kSize> of_gradient = square + c.eps, of_delta = s.state(1) + c.eps;
  const Block<kSize> delta = SquareRoots(of_delta) / SquareRoots(of_gradient) * g;
  deltas = c.beta2 * s.state(1) + c.one_minus_beta2 * delta * delta;
  s.parameters_out() = s.parameters() - c.lr * delta;
}

// Applies LARS, algorithm 1: the momentum buffer includes the step's rate.
void ApplyLars(const auto& s, const Coefficients& c, const auto& g) {
  auto buffer = s.state_out(0);
  const float rate = c.lr * c.ratio;
  if (c.is_first_step) {
    buffer = rate * g;
  } else {
    buffer = c.momentum * s.state(0) + rate * g;
  }
  s.parameters_out() = s.parameters() - buffer;
}

// Returns r + λw of LAMB, algorithm 2.
template <int kSize>
Block<kSize> LambDirection(const Slice<kSize>& s, const Coefficients& c, const auto& g, auto& mean,
                           auto& square) {
  mean = c.momentum * s.state(0) + c.one_minus_beta1 * g;
  Block<kSize> direction = mean / c.bias_correction1;
  square = c.beta2 * s.state(1) + c.one_minus_beta2 * g * g;
  const auto root = SquareRoots(square);
  direction =
      direction / (root / c.bias_correction2_sqrt + c.eps) + c.weight_decay * s.parameters();
  return direction;
}

void ApplyLamb(const auto& s, const Coefficients& c, const auto& g) {
  auto mean = s.state_out(0), square = s.state_out(1);
  s.parameters_out() = s.parameters() - c.lr * c.ratio * LambDirection(s, c, g, mean, square);
}

// Applies torch.optim.swa_utils.AveragedModel with buffers and the usual avg_fn: the first average
// is a copy.
void ApplyAverage(const auto& s, uint32_t slot, double decay, bool is_first_step) {
  const auto made = s.parameters_out();
  if (is_first_step) {
    s.state_out(slot) = made;
  } else {
    s.state_out(slot) = s.state(slot) + static_cast<float>(1.0 - decay) * (made - s.state(slot));
  }
}

void ZeroState(const auto& s, uint32_t state_count) {
  for (uint32_t k = 0; k < state_count; ++k) s.state_out(k).setZero();
}

void ApplyParameter(const OptimizerOptions& o, const auto& s, const Coefficients& c) {
  WithGradient(s, c, [&](const auto& g) {
    switch (o.kind) {
      case OptimizerKind::kSgd:
        return KeepsMomentum(o) ? ApplyMomentum(s, c, g) : ApplySgd(s, c, g);
      case OptimizerKind::kAdam:
      case OptimizerKind::kAdamW:
        return ApplyAdam(s, c, g);
      case OptimizerKind::kLars:
        return ApplyLars(s, c, g);
      case OptimizerKind::kLamb:
        return ApplyLamb(s, c, g);
      case OptimizerKind::kRmsprop:
        return ApplyRmsprop(o, s, c, g);
      case OptimizerKind::kAdagrad:
        return ApplyAdagrad(s, c, g);
      case OptimizerKind::kAdadelta:
        return ApplyAdadelta(s, c, g);
      case OptimizerKind::kNadam:
        return ApplyNadam(s, c, g);
    }
  });
  if (o.weight_clip == 0.0) return;
  const auto bound = static_cast<float>(o.weight_clip);
  s.parameters_out() = s.parameters_out().min(bound).max(-bound);  // a NaN stays one
}

}  // namespace pando
