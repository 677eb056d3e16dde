#include "train/local_round.h"

#include <algorithm>
#include <cmath>

namespace pando {
namespace {

template <class T>
std::vector<T> Slice(const std::vector<T>& all, size_t total, uint32_t first, uint32_t last) {
  const size_t each = total == 0 ? 0 : all.size() / total;
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first * each);
  return {begin, begin + static_cast<std::ptrdiff_t>((last - first) * each)};
}

}  // namespace

Batch Part(const Batch& batch, uint32_t first, uint32_t last) {
  const size_t count = batch.sample_count();
  return {.shape = batch.shape,
          .bytes = Slice(batch.bytes, count, first, last),
          .values = Slice(batch.values, count, first, last),
          .moves = Slice(batch.moves, count, first, last),
          .normalisation = batch.normalisation,
          .labels = Slice(batch.labels, count, first, last),
          .pinned = nullptr};
}

LocalRound::LocalRound(Network& network, const JobPlan& plan)
    : network_(network),
      plan_(plan),
      inner_(*ReadInner(plan.job)),
      schedule_(inner_.options, inner_.schedule, plan.steps.step_count()),
      optimizer_(inner_.options, plan.layout),
      parameters_(plan.layout.float_count()),
      state_(optimizer_.state_floats({0, plan.layout.float_count()})) {}

Result<BatchScore> LocalRound::Run(const Batch& batch, MicroBatchName name, const float* version,
                                   std::span<float> gradient,
                                   const std::function<Status()>& check_wanted) {
  std::copy_n(version, parameters_.size(), parameters_.data());
  std::ranges::fill(state_.span(), 0.0f);
  lr_ = schedule_.At(name.step).lr;
  step_ = 0;
  beta1_power_ = beta2_power_ = 1.0;
  BatchScore total;
  const uint64_t count = batch.sample_count();
  const uint64_t steps = std::min<uint64_t>(plan_.job.local_steps, count);
  for (uint64_t h = 0; h < steps; ++h) {
    PANDO_RETURN_IF_ERROR(check_wanted());
    const auto first = static_cast<uint32_t>(h * count / steps);
    const auto last = static_cast<uint32_t>((h + 1) * count / steps);
    // Dropout draws by (step, micro-batch), so each local step has another number.
    MicroBatchName local = name;
    local.micro_batch = MicroBatch(name.micro_batch.value() + static_cast<uint32_t>(h << 16));
    const BatchScore score = MakeStep(Part(batch, first, last), local, gradient);
    total.loss_sum += score.loss_sum;
    total.correct_count += score.correct_count;
    if (!std::isfinite(score.loss_sum)) break;
    Update(gradient, last - first);
  }
  WriteDifference(version, static_cast<float>(count), gradient);
  float* metrics = gradient.data() + plan_.layout.offset(plan_.layout.tensor_count() - 1);
  metrics[kMetricLoss] = static_cast<float>(total.loss_sum);
  metrics[kMetricCorrect] = static_cast<float>(total.correct_count);
  return total;
}

BatchScore LocalRound::MakeStep(const Batch& batch, MicroBatchName name,
                                std::span<float> gradient) {
  network_.SetBatch(batch, name, Mode::kTrain);
  for (uint32_t layer = 0; layer < network_.layer_count(); ++layer)
    network_.Forward(layer, parameters_.data());
  const BatchScore score = network_.Score();
  for (uint32_t layer = network_.layer_count(); layer-- > 0;)
    network_.Backward(layer, parameters_.data(), gradient.data());
  return score;
}

void LocalRound::Update(std::span<const float> gradient, uint32_t sample_count) {
  const OptimizerOptions& o = inner_.options;
  beta1_power_ *= o.beta1;  // without pow (P36)
  beta2_power_ *= o.beta2;
  const double momentum = HasBetas(o.kind) ? o.beta1 : o.momentum;
  StepScalars scalars{.lr = lr_, .momentum = static_cast<float>(momentum)};
  SetCorrections(o, step_, beta1_power_, beta2_power_, &scalars);
  optimizer_.Apply({.range = {0, parameters_.size()},
                    .parameters = parameters_.span(),
                    .gradient = gradient,
                    .gradient_scale = 1.0f / static_cast<float>(sample_count),
                    .scalars = scalars,
                    .is_first_step = step_ == 0,
                    .state = state_.span(),
                    .parameters_out = parameters_.span(),
                    .state_out = state_.span()});
  ++step_;
}

// The servers divide by the number of samples. They move a running statistic by its momentum, so
// that the mean of the rounds' local ones comes out.
void LocalRound::WriteDifference(const float* version, float sample_count,
                                 std::span<float> gradient) const {
  for (size_t t = 0; t < plan_.layout.tensor_count(); ++t) {
    const TensorSpec& spec = plan_.layout.specs()[t];
    for (size_t i = plan_.layout.offset(t); i < plan_.layout.offset(t) + spec.size(); ++i) {
      const float v = version[i];
      if (spec.kind == TensorKind::kParameter)
        gradient[i] = sample_count * (v - parameters_.data()[i]);
      else if (spec.kind == TensorKind::kStatistic)
        gradient[i] = sample_count * (v + (parameters_.data()[i] - v) / spec.momentum);
    }
  }
}

}  // namespace pando
