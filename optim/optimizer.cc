#include "optim/optimizer.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>

#include "common/check.h"
#include "common/cpu/cpu_level.h"
#include "optim/exact_sum.h"
#include "optim/schedule.h"
#include "optim/slice.h"
#include "optim/update_rules.h"
#include "plan/loss_scale.h"

namespace pando {
namespace {

// GroupCoefficients makes Coefficients for a tensor with its own rate or decay, as torch's
// parameter groups.
class GroupCoefficients {
 public:
  GroupCoefficients(const OptimizerOptions& options, const Optimizer::Update& update,
                    double lr_factor, double weight_decay)
      : options_(options), update_(update) {
    if (weight_decay >= 0.0) options_.weight_decay = weight_decay;
    update_.scalars.lr = static_cast<float>(update.scalars.lr * lr_factor);
  }
  GroupCoefficients(const GroupCoefficients&) = delete;
  Coefficients Make() const { return {options_, update_}; }  // refers to this

 private:
  OptimizerOptions options_;
  Optimizer::Update update_;
};

// SquareSum adds a piece's squares block by block, in sixteen partial sums for any register width.
// REQUIRES: the size of each block except the last is a multiple of sixteen.
class SquareSum {
 public:
  void Add(const auto& block) {
    const auto count = static_cast<size_t>(block.size());
    size_t i = 0;
    for (; i + kSums <= count; i += kSums) {
#pragma omp simd
      for (size_t k = 0; k < kSums; ++k) AddSquare(block[i + k], &sums_[k]);
    }
    for (size_t k = 0; i + k < count; ++k) AddSquare(block[i + k], &sums_[k]);
  }
  double Total() const {
    std::array<double, kSums> sums = sums_;
    for (size_t half = kSums / 2; half > 0; half /= 2) {
      for (size_t k = 0; k < half; ++k) sums[k] += sums[k + half];
    }
    return sums[0];
  }

 private:
  static void AddSquare(double x, double* sum) { *sum += x * x; }
  static constexpr size_t kSums = 16;
  std::array<double, kSums> sums_ = {};
};

// Calls visit(floats) for each piece of the tensor within the part.
template <class Visit>
void VisitPieces(size_t tensor_begin, ShardRange part, Visit visit) {
  constexpr size_t kPiece = TensorLayout::kPieceFloats;
  while (part.size() > 0) {
    const size_t pieces_before = (part.first - tensor_begin) / kPiece;
    const size_t end = std::min(part.last, tensor_begin + (pieces_before + 1) * kPiece);
    visit(ShardRange{part.first, end});
    part.first = end;
  }
}

// Returns the count for one group.
uint32_t GroupStateCount(const OptimizerOptions& options) {
  const uint32_t average = options.ema_decay > 0.0 ? 1 : 0;
  const uint32_t momentum = KeepsMomentum(options) ? 1 : 0;
  switch (options.kind) {
    case OptimizerKind::kSgd:
    case OptimizerKind::kLars:
      return momentum + average;
    case OptimizerKind::kRmsprop:
      return 1 + (options.centered ? 1 : 0) + momentum + average;
    case OptimizerKind::kAdagrad:
      return 1 + average;
    default:
      return 2 + average;
  }
}

}  // namespace

uint32_t OptimizerStateCount(const OptimizerOptions& options) {
  const OptimizerTurns turns(options);
  uint32_t count = 0;
  for (const OptimizerOptions& group : turns.groups())
    count = std::max(count, GroupStateCount(group));
  return count;
}

bool IsAdapted(const OptimizerOptions& options, const TensorSpec& spec) {
  return HasTrustRatios(options) && spec.kind == TensorKind::kParameter && spec.shape.size() > 1 &&
         spec.size() > 0;
}

Optimizer::Optimizer(const OptimizerOptions& options, const TensorLayout& layout)
    : turns_(options),
      options_(turns_.groups().front()),
      state_count_(OptimizerStateCount(options)) {
  for (size_t i = 0; i < layout.tensor_count(); ++i) {
    const TensorSpec& spec = layout.specs()[i];
    const Run run = MakeRun(spec, {layout.offset(i), layout.offset(i) + spec.size()});
    const bool continues = !runs_.empty() && runs_.back().IsLike(run) &&
                           runs_.back().range.last == run.range.first &&
                           options.clip_norm <= 0.0;  // norms are sums over pieces of tensors
    if (continues) {
      runs_.back().range.last = run.range.last;
    } else if (run.range.size() > 0) {
      runs_.push_back(run);
    }
  }
}

Optimizer::Run Optimizer::MakeRun(const TensorSpec& spec, ShardRange range) const {
  Run run{.range = range, .kind = spec.kind};
  const bool is_bias_or_norm = spec.shape.size() <= 1;
  const bool excludes = options_.weight_decay_exclude_bias_and_norm || HasTrustRatios(options_);
  if (spec.kind == TensorKind::kParameter) run.decays = !(is_bias_or_norm && excludes);
  run.is_adapted = IsAdapted(options_, spec);
  if (spec.kind == TensorKind::kStatistic) run.momentum = spec.momentum;
  if (spec.kind == TensorKind::kParameter) run.lr_factor = spec.lr_factor;
  if (spec.kind == TensorKind::kParameter) run.group = spec.group;
  if (run.decays) run.weight_decay = spec.weight_decay;
  if (!run.decays && run.lr_factor != 1.0) run.weight_decay = 0.0;
  return run;
}

template <class Visit>
void Optimizer::VisitParts(ShardRange range, Visit visit) const {
  auto ends_before = [](const Run& run, size_t x) { return run.range.last <= x; };
  auto run = std::lower_bound(runs_.begin(), runs_.end(), range.first, ends_before);
  for (; run != runs_.end() && run->range.first < range.last; ++run) {
    visit(*run, ShardRange{std::max(run->range.first, range.first),
                           std::min(run->range.last, range.last)});
  }
}

// ---- partial values -----------------------------------------------------------------------------

size_t Optimizer::factor_count(ShardRange range) const {
  if (!has_partials()) return 0;
  size_t count = has_last() ? 2 : 1;
  VisitParts(range, [&](const Run& run, ShardRange) { count += run.is_adapted ? 1 : 0; });
  return count;
}

size_t Optimizer::partial_count(ShardRange range) const {
  const size_t factors = factor_count(range);
  if (factors == 0) return 0;
  const size_t last = has_last() ? 1 : 0;
  const size_t ratios = factors - 1 - last;
  return (1 + 2 * ratios) * ExactSum::kFloats + last;
}

void Optimizer::MakePartialsHere(const Update& u, std::span<float> partials) const {
  PANDO_CHECK(has_partials() && partials.size() == partial_count(u.range));
  PANDO_CHECK(u.factors.empty());
  const Update counted = Counted(u);
  Coefficients c{options_, counted};
  c.couples_decay = false;
  const bool clips = options_.clip_norm > 0.0;
  const bool is_lamb = options_.kind == OptimizerKind::kLamb;
  ExactSum all_gradients;
  float weight = 0;
  size_t at = ExactSum::kFloats;
  VisitParts(u.range, [&](const Run& run, ShardRange part) {
    if (run.kind == TensorKind::kMetric)
      weight = u.gradient[part.first - u.range.first + kMetricWeight];
    if (run.kind != TensorKind::kParameter) return;
    if (!clips && !run.is_adapted) return;  // no update needs this norm
    ExactSum weights, updates;
    VisitPieces(run.range.first, part, [&](ShardRange floats) {
      SquareSum gradient, direction, parameters;
      VisitSlices(u, floats, [&]<int kSize>(const Slice<kSize>& s) {
        WithGradient(s, c, [&](const auto& g) {
          if (clips || !is_lamb) gradient.Add(Block<kSize>(g));
          if (!run.is_adapted) return;
          parameters.Add(s.parameters());
          Block<kSize> mean, square;
          if (is_lamb) direction.Add(LambDirection(s, c, g, mean, square));
        });
      });
      if (clips) all_gradients.Add(gradient.Total());
      if (!run.is_adapted) return;
      weights.Add(parameters.Total());
      updates.Add(is_lamb ? direction.Total() : gradient.Total());
    });
    if (!run.is_adapted) return;
    for (const ExactSum& sum : {weights, updates}) {
      sum.Write(partials.subspan(at, ExactSum::kFloats));
      at += ExactSum::kFloats;
    }
  });
  all_gradients.Write(partials.first(ExactSum::kFloats));
  if (options_.is_weighted) partials.back() = weight;
  if (!skips_overflows()) return;
  const bool is_finite =
      std::ranges::all_of(u.gradient, [](float g) { return std::abs(g) <= FLT_MAX; });
  partials.back() = is_finite ? 1.0f : 0.0f;
}

// ---- loss scaling -------------------------------------------------------------------------------

namespace {

// Returns the power by repeated squaring, with × alone (P36).
double Power(double base, uint64_t exponent) {
  double power = 1;
  for (; exponent > 0; exponent /= 2, base *= base) {
    if (exponent % 2 == 1) power *= base;
  }
  return power;
}

}  // namespace

// Returns the update, with loss scaling for a step number that counts only steps that were not
// skipped. The corrections are those of optim/schedule.cc, with the step's beta1.
Optimizer::Update Optimizer::Counted(const Update& u) const {
  Update counted = u;
  if (!skips_overflows()) return counted;
  const auto steps = static_cast<uint64_t>(u.state[StepCountAt(u.range)]);
  counted.is_first_step = steps == 0;
  SetCorrections(options_, steps, Power(u.scalars.momentum, steps + 1),
                 Power(options_.beta2, steps + 1), &counted.scalars);
  return counted;
}

void Optimizer::Skip(const Update& u) const {
  std::ranges::copy(u.parameters, u.parameters_out.begin());
  const size_t kept = StepCountAt(u.range) + 1;
  if (u.state.data() != u.state_out.data()) {
    std::copy_n(u.state.begin(), kept, u.state_out.begin());
  }
  const bool begins_average = options_.ema_decay > 0.0 && u.state[StepCountAt(u.range)] == 0;
  VisitParts(u.range, [&](const Run& run, ShardRange part) {
    if (run.kind == TensorKind::kMetric) {
      VisitSlices(u, part, [](const auto& s) { ApplyMetric(s); });
      MoveLossScale(u, part);
    } else if (begins_average) {
      VisitSlices(u, part, [&](const auto& s) { s.state_out(state_count_ - 1) = s.parameters(); });
    }
  });
}

// The part's parameters are of a group that the step does not train.
void Optimizer::Keep(const Update& u, ShardRange part) const {
  const bool begins_average = options_.ema_decay > 0.0 && u.is_first_of_run;
  VisitSlices(u, part, [&](const auto& s) {
    s.parameters_out() = s.parameters();
    for (uint32_t k = 0; k < state_count_; ++k) s.state_out(k) = s.state(k);
    if (begins_average) s.state_out(state_count_ - 1) = s.parameters();
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

void Optimizer::ApplyHere(const Update& u) const {
  const size_t size = u.range.size();
  PANDO_CHECK(u.parameters.size() == size && u.gradient.size() == size);
  PANDO_CHECK(u.parameters_out.size() == size);
  PANDO_CHECK(u.state.size() == state_floats(u.range) && u.state_out.size() == u.state.size());
  PANDO_CHECK(u.factors.size() == factor_count(u.range));
  PANDO_CHECK(u.gradient_right.empty() || (u.gradient_right.size() == size && !has_partials()));
  if (IsSkipped(u)) return Skip(u);

  const OptimizerOptions& options = turns_.groups()[u.group];
  const bool averages = options_.ema_decay > 0.0;
  // The average is the last state of all groups, behind the largest group's others.
  const uint32_t unaveraged_count = state_count_ - (averages ? 1 : 0);
  const uint32_t used_count = GroupStateCount(options) - (averages ? 1 : 0);
  const Update counted = Counted(u);
  const Coefficients decaying{options, counted};
  Coefficients excluded = decaying;
  excluded.couples_decay = false;
  excluded.parameter_decay = 1.0f;
  excluded.weight_decay = 0.0f;
  auto zero = [&](ShardRange padding) {
    VisitSlices(u, padding, [&](const auto& s) {
      s.parameters_out().setZero();
      ZeroState(s, state_count_);
    });
  };
  const bool begins_average =
      turns_.groups().size() == 1 ? counted.is_first_step : u.is_first_of_run;
  size_t done = u.range.first;  // the floats below it are done
  size_t adapted_count = 0;
  VisitParts(u.range, [&](const Run& run, ShardRange part) {
    zero({done, part.first});
    done = part.last;
    if (run.kind == TensorKind::kParameter && run.group != u.group) return Keep(u, part);
    std::optional<GroupCoefficients> group;
    if (run.has_own_group()) group.emplace(options, counted, run.lr_factor, run.weight_decay);
    Coefficients c = group ? group->Make() : run.decays ? decaying : excluded;
    if (run.is_adapted) c.ratio = u.factors[++adapted_count];
    const auto make = [&](const auto& s) {
      if (run.kind == TensorKind::kParameter) {
        ApplyParameter(options, s, c);
        for (uint32_t k = used_count; k < unaveraged_count; ++k) s.state_out(k).setZero();
      } else {
        run.kind == TensorKind::kStatistic ? ApplyStatistic(s, run.momentum) : ApplyMetric(s);
        const bool is_averaged = averages && run.kind == TensorKind::kStatistic;
        ZeroState(s, state_count_ - (is_averaged ? 1 : 0));
      }
      if (averages && run.kind != TensorKind::kMetric)
        ApplyAverage(s, state_count_ - 1, options_.ema_decay, begins_average);
    };
    // Plain SGD is one expression and needs no blocks.
    const bool is_one = state_count_ == 0 && u.gradient_right.empty();
    is_one ? make(Slice<Eigen::Dynamic>(u, part)) : VisitSlices(u, part, make);
    if (run.kind == TensorKind::kMetric && skips_overflows()) MoveLossScale(u, part);
  });
  zero({done, u.range.last});
  if (skips_overflows()) u.state_out[StepCountAt(u.range)] = u.state[StepCountAt(u.range)] + 1;
}

// ---- CPU levels ---------------------------------------------------------------------------------

struct OptimizerLoops {
  decltype(&Optimizer::MakePartials) make_partials = &Optimizer::MakePartialsHere;
  decltype(&Optimizer::Apply) apply = &Optimizer::ApplyHere;
};
PANDO_AT_EACH_CPU_LEVEL(OptimizerLoops, ChosenLoops)

void Optimizer::MakePartials(const Update& u, std::span<float> partials) const {
  (this->*ChosenLoops().make_partials)(u, partials);
}

void Optimizer::Apply(const Update& u) const { (this->*ChosenLoops().apply)(u); }

}  // namespace pando
