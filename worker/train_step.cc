#include "worker/train_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "common/hash.h"
#include "worker/bit_flip.h"

namespace pando {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

TrainStep::TrainStep(const Model& model, SampleCounts samples, const Context& context)
    : context_(context),
      network_(model, samples),
      layer_shards_(PlanLayerShards(context.plan, network_)),
      training_reads_(PlanTrainingReads(context.plan, network_)),
      evaluation_reads_(PlanEvaluationReads(context.plan, network_)),
      metric_shards_(MetricShards(context.plan)),
      shard_hashes_(context.plan.shards.shard_count()) {}

Status TrainStep::Run(const Work& work) {
  const auto start = Clock::now();
  waited_ = std::chrono::nanoseconds(0);
  auto parameters = context_.parameters.HoldVersion(VersionReadBy(work.step),
                                                    [&] { return work.is_abandoned(false); });
  if (!parameters.ok()) return parameters.status();
  auto batch = context_.batches.Take(work.step, work.micro_batch);
  if (!batch.ok()) return batch.status();
  network_.SetBatch(**batch, {context_.plan.job.seed, work.step, work.micro_batch}, Mode::kTrain);
  if (Status s = Forward(work, *parameters); !s.ok()) return s;
  const BatchScore score = network_.Score();
  if (Status s = CheckLoss(work, score); !s.ok()) return s;
  // Not earlier: the version is there now, so the step is one of the run's.
  if (!(*batch)->replaced.empty()) work.replaced((*batch)->replaced);
  SharedBuffer gradients = context_.gradients.Take();
  WriteMetrics(score, *gradients);
  HandOver(work, metric_shards_, gradients);
  if (Status s = Backward(work, *parameters, gradients); !s.ok()) return s;
  if (work.hash != nullptr) {
    *work.hash = std::max<uint64_t>(1, Hash64(std::as_bytes(std::span(shard_hashes_))));
  }
  computing_time_ = Clock::now() - start - waited_;
  return {};
}

// Follows the parameters as they arrive: the first layers need not wait for the last.
Status TrainStep::Forward(const Work& work, Hold& parameters) {
  for (uint32_t layer = 0; layer < network_.layer_count(); ++layer) {
    if (Status s = Await(work, parameters, layer, work.interrupted); !s.ok()) return s;
    if (work.is_abandoned(false)) return Interrupted("the work was abandoned");
    network_.Forward(layer, parameters.values());
  }
  return {};
}

// Gives each shard away as soon as it is final: it leaves while the rest is made. With layer
// residency the layers' parameters come a second time. What has left cannot be made again, so this
// wait ends only where nobody wants the rest either.
Status TrainStep::Backward(const Work& work, Hold& parameters, const SharedBuffer& gradients) {
  const auto is_abandoned = [&] { return work.is_abandoned(work.sum != nullptr); };
  for (uint32_t layer = network_.layer_count(); layer-- > 0;) {
    if (is_abandoned()) return Interrupted("the work was abandoned");
    if (context_.parameters.is_layered()) {
      const size_t stop = training_reads_.size() - 1 - layer;
      if (Status s = Await(work, parameters, stop, is_abandoned); !s.ok()) return s;
    }
    network_.Backward(layer, parameters.values(), gradients->data());
    HandOver(work, layer_shards_[layer].ready, gradients);
  }
  return {};
}

Status TrainStep::Await(const Work& work, Hold& parameters, size_t stop,
                        const std::function<bool()>& interrupted) {
  const auto start = Clock::now();
  const LayerReads& reads = training_reads_[stop];
  Status arrived = parameters.Advance(reads.now, reads.next, interrupted, work.fetch);
  waited_ += Clock::now() - start;
  return arrived;
}

// What is added to the sum is not ours any more: the hash comes first.
void TrainStep::HandOver(const Work& work, ShardPlan::Run shards, const SharedBuffer& gradients) {
  for (uint32_t s = shards.first; s < shards.last; ++s) {
    const ShardRange& range = context_.plan.shards.range(ShardId(s));
    const std::span<float> floats = gradients->span().subspan(range.first, range.size());
    FlipBit(work.step, work.micro_batch, ShardId(s), floats);
    if (work.hash != nullptr) shard_hashes_[s] = Hash64(std::as_bytes(floats));
  }
  if (work.sum != nullptr) work.sum->Add(work.micro_batch, shards, gradients);
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
    const Network::TensorRun read = network.TrainingTensors(layer);
    layers[layer].needed =
        plan.shards.Covering(plan.layout.offset(read.first), plan.layout.offset(read.last));
    layers[layer].ready = ShardsFrom(plan.shards, first, ready_before);
    ready_before = layers[layer].ready.first;
  }
  PANDO_CHECK(ready_before == 0);  // every shard becomes ready: layers cover all tensors
  return layers;
}

namespace {

ShardPlan::Run ShardsOf(const JobPlan& plan, Network::TensorRun tensors) {
  if (tensors.first == tensors.last) return {};
  return plan.shards.Covering(plan.layout.offset(tensors.first), plan.layout.offset(tensors.last));
}

void FillNext(std::vector<LayerReads>* reads) {
  ShardPlan::Run next;
  for (size_t i = reads->size(); i-- > 0;) {
    (*reads)[i].next = next;
    const ShardPlan::Run now = (*reads)[i].now;
    if (now.first != now.last) next = now;
  }
}

}  // namespace

std::vector<LayerReads> PlanTrainingReads(const JobPlan& plan, const Network& network) {
  std::vector<LayerReads> reads;
  for (uint32_t layer = 0; layer < network.layer_count(); ++layer)
    reads.push_back({ShardsOf(plan, network.TrainingTensors(layer)), {}});
  for (uint32_t layer = network.layer_count(); layer-- > 0;)
    reads.push_back({ShardsOf(plan, network.BackwardTensors(layer)), {}});
  FillNext(&reads);
  return reads;
}

std::vector<LayerReads> PlanEvaluationReads(const JobPlan& plan, const Network& network) {
  std::vector<LayerReads> reads;
  for (uint32_t layer = 0; layer < network.layer_count(); ++layer)
    reads.push_back({ShardsOf(plan, network.LayerTensors(layer)), {}});
  FillNext(&reads);
  return reads;
}

}  // namespace pando
