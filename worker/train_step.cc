#include "worker/train_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace pando {

TrainStep::TrainStep(const Model& model, uint32_t sample_count_max, const Context& context)
    : context_(context),
      network_(model, sample_count_max),
      layer_shards_(PlanLayerShards(context.plan, network_)),
      metric_shards_(MetricShards(context.plan)) {}

Status TrainStep::Run(const Work& work) {
  const Version version = VersionReadBy(work.step);
  auto parameters = context_.parameters.Open(version);
  if (!parameters.ok()) return parameters.status();
  auto batch = context_.batches.Take(work.step, work.micro_batch);
  if (!batch.ok()) return batch.status();
  network_.SetBatch(**batch, {context_.plan.job.seed, work.step, work.micro_batch}, Mode::kTrain);

  // Forward follows the parameters as they arrive: the first layers need not wait for the last.
  const float* values = (*parameters)->data();
  for (uint32_t layer = 0; layer < network_.layer_count(); ++layer) {
    Status arrived =
        context_.parameters.WaitFor(layer_shards_[layer].needed, version, work.interrupted);
    if (!arrived.ok()) return arrived;
    network_.Forward(layer, values);
  }
  const BatchScore score = network_.Score();
  if (Status s = CheckLoss(work, score); !s.ok()) return s;

  // Backward gives each shard to the sum as soon as it is final: it leaves while the rest is made.
  SharedBuffer gradients = context_.gradients.Take();
  WriteMetrics(score, *gradients);
  work.sum.Add(work.micro_batch, metric_shards_, gradients);
  for (uint32_t layer = network_.layer_count(); layer-- > 0;) {
    network_.Backward(layer, values, gradients->data());
    work.sum.Add(work.micro_batch, layer_shards_[layer].ready, gradients);
  }
  return {};
}

Status TrainStep::CheckLoss(const Work& work, const BatchScore& score) const {
  if (std::isfinite(score.loss_sum)) return {};
  return Internal(fmt::format(
      "the loss is not a finite number in step {}, micro-batch {}: training has diverged. Try a "
      "lower learning rate ([optimizer] lr is {:g}) or a warm-up ([schedule] warmup_steps)",
      work.step.value(), work.micro_batch.value(), context_.plan.job.optimizer.lr));
}

void TrainStep::WriteMetrics(const BatchScore& score, FloatBuffer& gradients) const {
  const TensorLayout& layout = context_.plan.layout;
  float* metrics = gradients.data() + layout.offset(layout.tensor_count() - 1);
  metrics[kMetricLoss] = static_cast<float>(score.loss_sum);
  metrics[kMetricCorrect] = static_cast<float>(score.correct_count);
}

namespace {

// The shards in [floats first, last) that begin at or after `first`, of those not ready before.
ShardPlan::Run ShardsFrom(const ShardPlan& shards, size_t first, uint32_t ready_before) {
  auto begins_before = [](const ShardRange& range, size_t x) { return range.first < x; };
  auto begin =
      std::lower_bound(shards.ranges().begin(), shards.ranges().end(), first, begins_before);
  return {static_cast<uint32_t>(begin - shards.ranges().begin()), ready_before};
}

}  // namespace

ShardPlan::Run MetricShards(const JobPlan& plan) {
  return ShardsFrom(plan.shards, plan.layout.offset(plan.layout.tensor_count() - 1),
                    plan.shards.shard_count());
}

std::vector<LayerShards> PlanLayerShards(const JobPlan& plan, const Network& network) {
  std::vector<LayerShards> layers(network.layer_count());
  uint32_t ready_before = MetricShards(plan).first;
  for (uint32_t layer = network.layer_count(); layer-- > 0;) {
    const Network::TensorRun tensors = network.LayerTensors(layer);
    if (tensors.first == tensors.last) continue;
    const size_t first = plan.layout.offset(tensors.first);
    layers[layer].needed = plan.shards.Covering(first, plan.layout.offset(tensors.last));
    layers[layer].ready = ShardsFrom(plan.shards, first, ready_before);
    ready_before = layers[layer].ready.first;
  }
  PANDO_CHECK(ready_before == 0);  // every shard becomes ready: layers cover all tensors
  return layers;
}

}  // namespace pando
