#include "optim/partial_plan.h"

#include <algorithm>
#include <cmath>

namespace pando {
namespace {

// torch.nn.utils.clip_grad_norm_ adds this to the denominator.
constexpr double kClipEps = 1e-6;

std::span<const float> WrittenSum(std::span<const float> partials, size_t index) {
  return partials.subspan(index * ExactSum::kFloats, ExactSum::kFloats);
}

}  // namespace

void PartialTotal::AddWritten(std::span<const float> total) {
  squares.AddWritten(WrittenSum(total, 0));
  is_finite &= total[ExactSum::kFloats] == 1.0f;
  weight += total[ExactSum::kFloats + 1];  // one of them is zero
}

std::vector<float> PartialTotal::Write() const {
  std::vector<float> floats(kFloats);
  squares.Write(std::span(floats).first(ExactSum::kFloats));
  floats[ExactSum::kFloats] = is_finite ? 1.0f : 0.0f;
  floats[ExactSum::kFloats + 1] = weight;
  return floats;
}

PartialPlan::PartialPlan(const OptimizerOptions& options, const TensorLayout& layout,
                         const ShardPlan& shards)
    : options_(options), last_(shards.shard_count() - 1) {
  const Optimizer optimizer(options, layout);
  if (!optimizer.has_partials()) return;
  const uint32_t shard_count = shards.shard_count();
  adapted_.resize(shard_count);
  for (uint32_t s = 0; s < shard_count; ++s) neighbours_.push_back({s, s + 1});
  for (size_t i = 0; i < layout.tensor_count(); ++i) {
    const TensorSpec& spec = layout.specs()[i];
    ShardPlan::Run& run = covering_.emplace_back();
    if (!IsAdapted(options, spec)) continue;
    run = shards.Covering(layout.offset(i), layout.offset(i) + spec.size());
    for (uint32_t s = run.first; s < run.last; ++s) {
      ShardPlan::Run& neighbours = neighbours_[s];
      adapted_[s].push_back(i);
      neighbours = {std::min(neighbours.first, run.first), std::max(neighbours.last, run.last)};
    }
  }
}

void PartialPlan::AddTo(PartialTotal* total, ShardId shard, std::span<const float> partials) const {
  if (options_.clip_norm > 0) total->squares.AddWritten(WrittenSum(partials, 0));
  if (options_.loss_scale.is_on) total->is_finite &= partials.back() == 1.0f;
  if (options_.is_weighted && shard == last_) total->weight = partials.back();
}

std::optional<std::vector<float>> PartialPlan::Combine(ShardId shard, const PartialTotal& total,
                                                       const FindPartials& partials) const {
  const ShardPlan::Run neighbours = Neighbours(shard);
  for (uint32_t s = neighbours.first; s < neighbours.last; ++s) {
    if (partials(ShardId(s)).empty()) return std::nullopt;
  }
  // If a step's weight is zero, its sums are zeros, and so are the means.
  const float mean_scale = !options_.is_weighted  ? 1.0f
                           : total.weight == 0.0f ? 0.0f
                                                  : 1.0f / total.weight;
  const double clip_factor = options_.clip_norm > 0 ? ClipFactor(total, mean_scale) : 1.0;
  std::vector<float> factors{static_cast<float>(clip_factor)};
  for (size_t tensor : adapted_[shard.value()])
    factors.push_back(TrustRatio(tensor, clip_factor, partials));
  if (options_.loss_scale.is_on) factors.push_back(total.is_finite ? 1.0f : 0.0f);
  if (options_.is_weighted) factors.push_back(mean_scale);
  return factors;
}

// If the norm is NaN, the gradient stays as it is: the NaN loss ends the run.
double PartialPlan::ClipFactor(const PartialTotal& total, float mean_scale) const {
  const double norm = std::sqrt(total.squares.Total()) * static_cast<double>(mean_scale);
  return std::min(1.0, options_.clip_norm / (norm + kClipEps));
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

}  // namespace pando
