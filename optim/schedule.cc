#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "common/check.h"

namespace pando {
namespace {

// Returns the value on a cosine from `start` at progress 0 to `end` at progress 1.
double AnnealCosine(double start, double end, double progress) {
  return end + (start - end) / 2.0 * (std::cos(std::numbers::pi * progress) + 1.0);
}

// Cycle is torch's OneCycleLR with two phases: from `start` up or down to `peak`, then to `end`.
struct Cycle {
  double start, peak, end;
};

double ValueInCycle(const Cycle& cycle, double pct_start, uint64_t step, uint64_t step_count) {
  const double peak = pct_start * static_cast<double>(step_count) - 1.0;
  const double last = static_cast<double>(step_count) - 1.0;
  const auto at = static_cast<double>(step);
  if (at > peak) return AnnealCosine(cycle.peak, cycle.end, (at - peak) / (last - peak));
  // A peak at step 0 has no rise; torch divides by zero there.
  return AnnealCosine(cycle.start, cycle.peak, peak > 0.0 ? at / peak : 1.0);
}

// Returns the progress of LinearLR and PolynomialLR: 0 at the first step, 1 after total_iters.
double KindProgress(const ScheduleOptions& s, uint64_t step, uint64_t step_count) {
  const uint64_t total = s.total_iters == 0 ? step_count : s.total_iters;
  return static_cast<double>(std::min(step, total)) / static_cast<double>(total);
}

// Returns the rate of the schedule's kind, without warm-up, at `step` of its `step_count` steps.
double KindRate(const ScheduleOptions& s, double lr, uint64_t step, uint64_t step_count) {
  switch (s.kind) {
    case ScheduleKind::kConstant:
      return lr;
    case ScheduleKind::kStep: {
      const uint64_t decays = s.step_size == 0 ? 0 : step / s.step_size;
      return lr * std::pow(s.gamma, static_cast<double>(decays));
    }
    case ScheduleKind::kCosine:
      // As CosineAnnealingLR with T_max = step_count: the last rate is just above min_lr.
      return AnnealCosine(lr, s.min_lr,
                          static_cast<double>(step) / static_cast<double>(step_count));
    case ScheduleKind::kOneCycle: {
      const double start = lr / s.div_factor;
      return ValueInCycle({start, lr, start / s.final_div_factor}, s.pct_start, step, step_count);
    }
    case ScheduleKind::kMultiStep: {
      const auto decays = std::ranges::count_if(s.milestones, [&](auto m) { return m <= step; });
      return lr * std::pow(s.gamma, static_cast<double>(decays));
    }
    case ScheduleKind::kExponential:
      return lr * std::pow(s.gamma, static_cast<double>(step));
    case ScheduleKind::kLinear: {
      const double progress = KindProgress(s, step, step_count);
      return lr * (s.start_factor + (s.end_factor - s.start_factor) * progress);
    }
    case ScheduleKind::kPolynomial:
      return lr * std::pow(1.0 - KindProgress(s, step, step_count), s.power);
    case ScheduleKind::kTable:
      break;  // Schedule::LearningRate
  }
  PANDO_CHECK(false);
}

// KindPoint is a step of the schedule's kind. Warm-up takes the first steps of the job, and the
// kind the others, as in torch's SequentialLR. A kind that is never reached gets the whole job.
struct KindPoint {
  uint64_t step;
  uint64_t step_count;
};

KindPoint AfterWarmup(const ScheduleOptions& s, uint64_t step, uint64_t step_count) {
  const uint64_t warmup = s.warmup_steps;
  return {step > warmup ? step - warmup : 0,
          step_count > warmup ? step_count - warmup : step_count};
}

RateTable ReadRates(const ScheduleOptions& schedule) {
  if (schedule.kind != ScheduleKind::kTable) return {};
  Result<RateTable> table = RateTable::Parse(schedule.rates);
  PANDO_CHECK(table.ok());
  return *std::move(table);
}

}  // namespace

Schedule::Schedule(const OptimizerOptions& optimizer, const ScheduleOptions& schedule,
                   uint64_t step_count)
    : turns_(optimizer),
      optimizer_(turns_.groups().front()),
      schedule_(schedule),
      step_count_(step_count),
      rates_(ReadRates(schedule)) {
  if (optimizer_.kind != OptimizerKind::kNadam) return;
  constexpr double kNegligible = 0x1p-60;  // 1 − product is 1
  double product = 1.0;
  for (uint64_t step = 0; step < step_count_ && product >= kNegligible; ++step) {
    product *= NadamMu(step, step + 1);
    mu_products_.push_back(product);
  }
}

StepScalars Schedule::At(Step step) const {
  PANDO_CHECK(step.value() < step_count_);
  const OptimizerOptions& o = turns_.OptionsAt(step);
  const uint64_t t = turns_.StepsBefore(step);
  const double momentum = Momentum(step.value(), o);
  StepScalars scalars{.lr = static_cast<float>(LearningRate(step.value())),
                      .momentum = static_cast<float>(momentum)};
  // torch corrects with this step's beta1, even if a schedule cycles it.
  const auto updates = static_cast<double>(t) + 1.0;
  SetCorrections(o, t, std::pow(momentum, updates), std::pow(o.beta2, updates), &scalars);
  if (o.kind == OptimizerKind::kNadam) SetNadamFactors(t, &scalars);
  return scalars;
}

// Returns the mu of update `count`, which is 1 at the first step, with the beta1 of `step`.
double Schedule::NadamMu(uint64_t step, uint64_t count) const {
  const double decay = std::pow(0.96, static_cast<double>(count) * optimizer_.momentum_decay);
  return Momentum(step, optimizer_) * (1.0 - 0.5 * decay);
}

void Schedule::SetNadamFactors(uint64_t step, StepScalars* scalars) const {
  const double product = step < mu_products_.size() ? mu_products_[step] : 0.0;
  const double next = NadamMu(step, step + 2);
  scalars->gradient_factor = static_cast<float>((1.0 - NadamMu(step, step + 1)) / (1.0 - product));
  scalars->mean_factor = static_cast<float>(next / (1.0 - product * next));
}

std::vector<StepScalars> Schedule::Block(Step first, uint64_t count) const {
  std::vector<StepScalars> block;
  if (first.value() >= step_count_) return block;
  const uint64_t last = first.value() + std::min(count, step_count_ - first.value());
  block.reserve(last - first.value());
  for (Step step = first; step.value() < last; step = NextStep(step)) block.push_back(At(step));
  return block;
}

// Warm-up is linear: step t of W has (t + 1) / W of the kind's first rate.
double Schedule::LearningRate(uint64_t step) const {
  if (schedule_.kind == ScheduleKind::kTable) return rates_.At(step);
  const KindPoint point = AfterWarmup(schedule_, step, step_count_);
  const double rate = KindRate(schedule_, optimizer_.lr, point.step, point.step_count);
  if (step >= schedule_.warmup_steps) return rate;
  return rate * (static_cast<double>(step) + 1.0) / static_cast<double>(schedule_.warmup_steps);
}

// With one-cycle, SGD without momentum stays without momentum (torch would enable it), because the
// optimizer's state follows from its options alone.
double Schedule::Momentum(uint64_t step, const OptimizerOptions& options) const {
  const bool has_betas = HasBetas(options.kind);
  const double fixed = has_betas ? options.beta1 : options.momentum;
  const bool cycles = schedule_.kind == ScheduleKind::kOneCycle && schedule_.cycle_momentum;
  if (!cycles || (!has_betas && fixed == 0.0)) return fixed;
  const KindPoint point = AfterWarmup(schedule_, step, step_count_);
  return ValueInCycle({schedule_.max_momentum, schedule_.base_momentum, schedule_.max_momentum},
                      schedule_.pct_start, point.step, point.step_count);
}

}  // namespace pando
