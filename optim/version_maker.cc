#include "optim/version_maker.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "optim/exact_sum.h"

namespace pando {
namespace {

// torch.nn.utils.clip_grad_norm_ adds this to the denominator.
constexpr double kClipEps = 1e-6;

std::span<const float> WrittenSum(std::span<const float> partials, size_t index) {
  return partials.subspan(index * ExactSum::kFloats, ExactSum::kFloats);
}

}  // namespace

PartialPlan::PartialPlan(const OptimizerOptions& options, const TensorLayout& layout,
                         const ShardPlan& shards)
    : options_(options) {
  const Optimizer optimizer(options, layout);
  if (!optimizer.has_partials()) return;
  const uint32_t shard_count = shards.shard_count();
  const ShardPlan::Run all{0, shard_count};
  adapted_.resize(shard_count);
  for (uint32_t s = 0; s < shard_count; ++s)
    needs_.push_back(options.clip_norm > 0 || options.loss_scale.is_on || options.is_weighted
                         ? all
                         : ShardPlan::Run{s, s + 1});
  for (size_t i = 0; i < layout.tensor_count(); ++i) {
    const TensorSpec& spec = layout.specs()[i];
    ShardPlan::Run& run = covering_.emplace_back();
    if (!IsAdapted(options, spec)) continue;
    run = shards.Covering(layout.offset(i), layout.offset(i) + spec.size());
    for (uint32_t s = run.first; s < run.last; ++s) {
      adapted_[s].push_back(i);
      needs_[s] = {std::min(needs_[s].first, run.first), std::max(needs_[s].last, run.last)};
    }
  }
}

std::optional<std::vector<float>> PartialPlan::Combine(ShardId shard,
                                                       const FindPartials& partials) const {
  const ShardPlan::Run needs = Needs(shard);
  for (uint32_t s = needs.first; s < needs.last; ++s) {
    if (partials(ShardId(s)).empty()) return std::nullopt;
  }
  const float mean_scale = options_.is_weighted ? MeanScale(needs, partials) : 1.0f;
  double clip_factor = 1.0;
  // If the norm is NaN, the gradient stays as it is: the NaN loss ends the run.
  if (options_.clip_norm > 0) {
    const double norm = GradientNorm(needs, partials) * static_cast<double>(mean_scale);
    clip_factor = std::min(1.0, options_.clip_norm / (norm + kClipEps));
  }
  std::vector<float> factors{static_cast<float>(clip_factor)};
  for (size_t tensor : adapted_[shard.value()])
    factors.push_back(TrustRatio(tensor, clip_factor, partials));
  if (options_.loss_scale.is_on) factors.push_back(AreFinite(needs, partials) ? 1.0f : 0.0f);
  if (options_.is_weighted) factors.push_back(mean_scale);
  return factors;
}

bool PartialPlan::AreFinite(ShardPlan::Run shards, const FindPartials& partials) const {
  for (uint32_t s = shards.first; s < shards.last; ++s) {
    if (partials(ShardId(s)).back() != 1.0f) return false;
  }
  return true;
}

double PartialPlan::GradientNorm(ShardPlan::Run shards, const FindPartials& partials) {
  ExactSum squares;
  for (uint32_t s = shards.first; s < shards.last; ++s)
    squares.AddWritten(WrittenSum(partials(ShardId(s)), 0));
  return std::sqrt(squares.Total());
}

// Returns the scale that makes sums means. The last shard has the step's weight. If that is zero,
// the sums are zeros, and so are the means.
float PartialPlan::MeanScale(ShardPlan::Run shards, const FindPartials& partials) const {
  const float weight = partials(ShardId(shards.last - 1)).back();
  return weight == 0.0f ? 0.0f : 1.0f / weight;
}

// Returns the trust ratio. LARS (You et al. 2017, equation 6): η‖w‖ / (‖g‖ + β‖w‖). LAMB (You et
// al. 2020, algorithm 2): ‖w‖ / ‖r + λw‖, at most trust_ratio_max: if a layer's gradient becomes
// zero, r fades and the ratio would keep it moving at full speed. It is 1 if a norm is zero.
float PartialPlan::TrustRatio(size_t tensor, double clip_factor,
                              const FindPartials& partials) const {
  ExactSum weights, updates;
  const ShardPlan::Run run = covering_[tensor];
  for (uint32_t s = run.first; s < run.last; ++s) {
    const auto at = std::ranges::lower_bound(adapted_[s], tensor) - adapted_[s].begin();
    const auto index = 1 + 2 * static_cast<size_t>(at);
    weights.AddWritten(WrittenSum(partials(ShardId(s)), index));
    updates.AddWritten(WrittenSum(partials(ShardId(s)), index + 1));
  }
  const double weight = std::sqrt(weights.Total());
  const double update = clip_factor * std::sqrt(updates.Total());
  if (!(weight > 0.0 && update > 0.0)) return 1.0f;
  if (options_.kind == OptimizerKind::kLamb)
    return static_cast<float>(std::min(weight / update, options_.trust_ratio_max));
  return static_cast<float>(options_.trust_coefficient * weight /
                            (update + options_.weight_decay * weight));
}

Optimizer::Update VersionMaker::ToUpdate(const Inputs& inputs) const {
  return {.range = range(inputs.shard),
          .parameters = inputs.parameters,
          .gradient = inputs.gradient,
          .gradient_right = inputs.gradient_right,
          .gradient_scale = 1.0f / static_cast<float>(plan_.steps.SampleCount(inputs.step)),
          .weight_scale = plan_.job.optimizer.is_weighted ? std::optional(1.0f) : std::nullopt,
          .scalars = inputs.scalars,
          .is_first_step = inputs.step == Step(0),
          .state = inputs.state};
}

std::vector<float> VersionMaker::MakePartials(const Inputs& inputs) const {
  PANDO_CHECK(inputs.gradient_right.empty());
  std::vector<float> partials(partial_count(inputs.shard));
  optimizer_.MakePartials(ToUpdate(inputs), partials);
  return partials;
}

std::optional<std::vector<float>> VersionMaker::Combine(
    ShardId shard, const PartialPlan::FindPartials& partials) const {
  if (!has_partials()) return std::vector<float>();
  return partial_plan_.Combine(shard, partials);
}

void VersionMaker::Make(const Inputs& inputs, const Norms& norms, const Outputs& outputs) const {
  PANDO_CHECK(norms.partials.size() == partial_count(inputs.shard));
  Optimizer::Update update = ToUpdate(inputs);
  update.factors = norms.factors;
  if (plan_.job.optimizer.is_weighted) update.weight_scale = norms.factors.back();
  update.parameters_out = outputs.parameters;
  update.state_out = outputs.state;
  optimizer_.Apply(update);
  std::ranges::copy(norms.partials, outputs.state.last(norms.partials.size()).begin());
}

}  // namespace pando
