#include "worker/train_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "common/hash.h"
#include "common/loss_scale.h"
#include "worker/bit_flip.h"

namespace pando {
namespace {

using Clock = std::chrono::steady_clock;
using What = StepTimeline::What;

// Parameters that come so quickly that a pass need not begin with the first of them: 4 MiB.
constexpr size_t kRecordedFloatsMax = size_t{1} << 20;

}  // namespace

TrainStep::TrainStep(const Model& model, SampleCounts samples, Device device,
                     const Context& context)
    : context_(context),
      device_(device),
      network_(model, samples, device),
      layer_shards_(PlanLayerShards(context.plan, network_)),
      backward_parts_(PlanBackwardParts(layer_shards_)),
      training_reads_(PlanTrainingReads(context.plan, network_)),
      evaluation_reads_(PlanEvaluationReads(context.plan, network_)),
      metric_shards_(MetricShards(context.plan)),
      shard_hashes_(context.plan.shards.shard_count()) {
  context_.timeline.NameLayers(network_);
  if (device.kind == DeviceKind::kCpu) return;
  traffic_.emplace(device, context.plan.shards, context.host_gradients);
  const bool is_small = context.plan.layout.float_count() <= kRecordedFloatsMax;
  if (is_small && !context.parameters.is_layered())
    recordings_.emplace(device, 1 + backward_parts_.size());
}

Status TrainStep::Run(const Work& work) {
  const auto start = Clock::now();
  waited_ = std::chrono::nanoseconds(0);
  BringBatch(work.step, work.micro_batch);
  auto parameters = context_.parameters.HoldVersion(VersionReadBy(work.step),
                                                    [&] { return work.is_abandoned(false); });
  if (!parameters.ok()) return parameters.status();
  auto batch = context_.batches.Take(work.step, work.micro_batch);
  if (!batch.ok()) return batch.status();
  context_.timeline.Did(What::kAwaitSamples);
  const Status computed = Compute(work, *parameters, *batch);
  if (traffic_) traffic_->End();
  encoded_ = nullptr;
  if (!computed.ok()) return computed;
  if (work.hash != nullptr) {
    *work.hash = std::max<uint64_t>(1, Hash64(std::as_bytes(std::span(shard_hashes_))));
  }
  computing_time_ = Clock::now() - start - waited_;
  return {};
}

Status TrainStep::Compute(const Work& work, Hold& parameters,
                          const std::shared_ptr<const Batch>& batch) {
  Result<float> scale = LossScaleFor(work, parameters);
  if (!scale.ok()) return scale.status();
  SetBatch(work, batch, *scale);
  context_.timeline.Did(What::kPrepare);
  if (traffic_) traffic_->training_parameters().Follow(parameters.serial(), parameters.values());
  SharedBuffer gradients = recordings_ ? context_.gradients.Take() : nullptr;
  if (recordings_) recordings_->Begin(batch->sample_count(), gradients->data());
  if (Status s = Forward(work, parameters, gradients.get()); !s.ok()) return s;
  if (Status s = TakeScore(work, *batch); !s.ok()) return s;
  context_.timeline.Did(What::kScore);
  if (!recordings_) {  // not earlier: a forward that waits needs none
    gradients = context_.gradients.Take();
    network_.WriteScore(gradients->data() + MetricsAt());
  }
  HandOver(work, metric_shards_, gradients);
  return Backward(work, parameters, gradients);
}

void TrainStep::SetBatch(const Work& work, const std::shared_ptr<const Batch>& batch,
                         float loss_scale) {
  const MicroBatchName name{context_.plan.job.seed, work.step, work.micro_batch, loss_scale};
  if (traffic_) return traffic_->batches().SetIn(network_, batch, name);
  network_.SetBatch(*batch, name, Mode::kTrain);
}

// If it has been read: nothing waits for it here.
void TrainStep::BringBatch(Step step, MicroBatch micro_batch) {
  if (!traffic_) return;
  if (auto batch = context_.batches.Peek(step, micro_batch)) traffic_->batches().Bring(batch);
}

// It comes with the version (P1).
Result<float> TrainStep::LossScaleFor(const Work& work, Hold& parameters) {
  const LossScaleOptions& options = context_.plan.job.optimizer.loss_scale;
  if (!options.is_on) return 1.0f;
  const uint32_t shard = context_.plan.metric_shard().value();
  const auto start = Clock::now();
  const Status arrived = parameters.Advance({shard, shard + 1}, training_reads_.front().now,
                                            work.interrupted, work.fetch);
  waited_ += Clock::now() - start;
  context_.timeline.Did(What::kAwaitParameters);
  if (!arrived.ok()) return arrived;
  const LossScale now = LossScaleOf(options, {parameters.values() + MetricsAt(), kMetricSlotCount});
  if (now.hysteresis > 0 || options.loss_scale > 0) return now.scale;
  return Internal(fmt::format(
      "gradients overflow half floats at the smallest loss scale ({:g}, fp16.min_loss_scale) in "
      "step {}: training has diverged, or the model is not for fp16. Try --precision bf16, or a "
      "lower learning rate",
      now.scale, work.step.value() - 1));
}

const float* TrainStep::ValuesOf(const Hold& parameters) const {
  return traffic_ ? traffic_->training_parameters().values() : parameters.values();
}

// Follows the parameters as they arrive: the first layers need not wait for the last, unless they
// are launched together.
Status TrainStep::Forward(const Work& work, Hold& parameters, FloatBuffer* recorded_into) {
  for (uint32_t layer = 0; layer < network_.layer_count(); ++layer) {
    if (Status s = Await(work, parameters, layer, work.interrupted); !s.ok()) return s;
    if (work.is_abandoned(false)) return Interrupted("the work was abandoned");
    if (recordings_) continue;
    network_.Forward(layer, ValuesOf(parameters));
    context_.timeline.DidForward(layer);
  }
  if (!recordings_) return {};
  recordings_->Launch([&] {
    for (uint32_t layer = 0; layer < network_.layer_count(); ++layer)
      network_.Forward(layer, ValuesOf(parameters));
    network_.WriteScore(recorded_into->data() + MetricsAt());
  });
  context_.timeline.Did(What::kForward);
  return {};
}

size_t TrainStep::MetricsAt() const {
  const TensorLayout& layout = context_.plan.layout;
  return layout.offset(layout.tensor_count() - 1);
}

// Pictures that were replaced are told of no earlier: the version is there now, so the step is one
// of the run's.
Status TrainStep::TakeScore(const Work& work, const Batch& batch) {
  const auto take = [this, &work, &batch](const BatchScore& score) {
    if (Status s = CheckLoss(work, score); !s.ok()) return s;
    if (!batch.replaced.empty()) work.replaced(batch.replaced);
    return Status();
  };
  if (!traffic_) return take(network_.Score());
  traffic_->SendScore(network_, take);
  return {};
}

// Gives each shard away as soon as it is final: it leaves while the rest is made. With layer
// residency the layers' parameters come a second time; a GPU has kept them. What has left cannot be
// made again, so this wait ends only where nobody wants the rest either.
Status TrainStep::Backward(const Work& work, Hold& parameters, const SharedBuffer& gradients) {
  const auto is_abandoned = [&] { return work.is_abandoned(work.sum != nullptr); };
  for (const LayerRun& part : backward_parts_) {
    if (Status s = BackwardPart(work, part, parameters, *gradients, is_abandoned); !s.ok())
      return s;
    HandOver(work, layer_shards_[part.first].ready, gradients);
    if (!traffic_) continue;
    if (Status s = traffic_->Poll(); !s.ok()) return s;
  }
  if (!traffic_) return {};
  const std::optional<MicroBatchOfStep> next = work.next ? work.next() : std::nullopt;
  if (next) BringBatch(next->step, next->micro_batch);
  const Status finished = traffic_->Finish(is_abandoned);
  context_.timeline.Did(What::kAwaitDevice);
  return finished;
}

Status TrainStep::BackwardPart(const Work& work, LayerRun part, Hold& parameters,
                               FloatBuffer& gradients, const std::function<bool()>& is_abandoned) {
  const auto go = [&](uint32_t layer) {
    network_.Backward(layer, ValuesOf(parameters), gradients.data());
  };
  if (recordings_) {
    if (is_abandoned()) return Interrupted("the work was abandoned");
    recordings_->Launch([&] {
      for (uint32_t layer = part.last + 1; layer-- > part.first;) go(layer);
    });
    context_.timeline.Did(What::kBackward);
    return {};
  }
  for (uint32_t layer = part.last + 1; layer-- > part.first;) {
    if (is_abandoned()) return Interrupted("the work was abandoned");
    if (context_.parameters.is_layered() && !traffic_) {
      const size_t stop = training_reads_.size() - 1 - layer;
      if (Status s = Await(work, parameters, stop, is_abandoned); !s.ok()) return s;
    }
    go(layer);
    context_.timeline.DidBackward(layer);
  }
  return {};
}

Status TrainStep::Await(const Work& work, Hold& parameters, size_t stop,
                        const std::function<bool()>& interrupted) {
  const LayerReads& reads = training_reads_[stop];
  if (traffic_ && traffic_->training_parameters().Has(reads.now)) return {};
  const auto start = Clock::now();
  Status arrived = parameters.Advance(reads.now, reads.next, interrupted, work.fetch);
  waited_ += Clock::now() - start;
  context_.timeline.Did(What::kAwaitParameters);
  if (arrived.ok() && traffic_) traffic_->training_parameters().Bring(reads.now);
  return arrived;
}

// What is added to the sum is not ours any more: the hash comes first.
void TrainStep::HandOver(const Work& work, ShardPlan::Run shards, const SharedBuffer& gradients) {
  if (work.hash != nullptr || !traffic_) Hash(work, shards, gradients);
  if (work.sum == nullptr) return;
  std::vector<GpuTraffic::Sum> sums;
  work.sum->Add(work.micro_batch, shards, gradients,
                [&](TreeNode node, ShardId shard, const SharedBuffer& sum) {
                  if (traffic_) return sums.push_back({node, shard, sum});
                  const ShardRange& range = context_.plan.shards.range(shard);
                  Emit(work, node, shard, ToBlob(sum, range.first, range.size()));
                });
  if (traffic_) {
    traffic_->SendSums(std::move(sums), [this, &work](TreeNode node, ShardId shard, Blob sum) {
      Emit(work, node, shard, std::move(sum));
    });
  }
  context_.timeline.Did(What::kSum);
}

// The encoded shards of a pass share one vector: of each it makes at most one sum.
void TrainStep::Emit(const Work& work, TreeNode node, ShardId shard, Blob sum) {
  const PayloadPlan& pushes = context_.plan.pushes;
  if (pushes.is_exact()) return work.emit(node, shard, std::move(sum));
  if (encoded_ == nullptr) encoded_ = context_.encoded.Take();
  const size_t first = pushes.OffsetOf(shard);
  const size_t count = pushes.PayloadBytes(shard) / sizeof(float);
  const auto encoded = std::as_writable_bytes(encoded_->span().subspan(first, count));
  if (pushes.has_feedback()) {
    context_.feedback.Encode(work.step, work.micro_batch, shard, sum.floats(), encoded);
  } else {
    pushes.CodecOf(shard)->Encode(sum.floats(), encoded);
  }
  work.emit(node, shard, ToBlob(encoded_, first, count));
}

// From a GPU they are brought for it: few are hashed.
void TrainStep::Hash(const Work& work, ShardPlan::Run shards, const SharedBuffer& gradients) {
  for (uint32_t s = shards.first; s < shards.last; ++s) {
    const ShardRange& range = context_.plan.shards.range(ShardId(s));
    std::span<float> floats = gradients->span().subspan(range.first, range.size());
    FloatBuffer host;
    if (traffic_) {
      host = FloatBuffer(range.size());
      Download(device_, floats.data(), std::as_writable_bytes(host.span()));
      floats = host.span();
    }
    FlipBit(work.step, work.micro_batch, ShardId(s), floats);
    if (work.hash != nullptr) shard_hashes_[s] = Hash64(std::as_bytes(floats));
  }
}

Result<ChunkScore> TrainStep::Evaluate(const Batch& batch, const EvaluationParameters& parameters) {
  const auto await = [&](uint32_t layer) -> Status {
    const LayerReads& reads = evaluation_reads_[layer];
    if (traffic_ && traffic_->evaluation_parameters().Has(reads.now)) return {};
    const Status arrived = parameters.await ? parameters.await(reads) : Status();
    if (arrived.ok() && traffic_) traffic_->evaluation_parameters().Bring(reads.now);
    return arrived;
  };
  if (!traffic_) return EvaluateChunk(network_, batch, parameters.host, await);
  traffic_->evaluation_parameters().Follow(parameters.serial, parameters.host);
  Result<ChunkScore> score =
      EvaluateChunk(network_, batch, traffic_->evaluation_parameters().values(), await);
  traffic_->End();
  return score;
}

Status TrainStep::CheckLoss(const Work& work, const BatchScore& score) const {
  if (std::isfinite(score.loss_sum)) return {};
  const Job& job = context_.plan.job;
  const bool may_overflow = job.push_codec == PayloadCodec::kFp16;
  return Internal(fmt::format(
      "the loss is not a finite number in step {}, micro-batch {}: training has diverged. Try a "
      "lower learning rate ([optimizer] lr is {:g}) or a warm-up ([schedule] warmup_steps){}",
      work.step.value(), work.micro_batch.value(), job.optimizer.lr,
      may_overflow ? "; or sums of gradients exceed 65504, the most that train.codec fp16 holds: "
                     "try --codec bf16"
                   : ""));
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

// Every layer is in one of them: the first layer's shards are ready at the end.
std::vector<LayerRun> PlanBackwardParts(const std::vector<LayerShards>& layers) {
  std::vector<LayerRun> parts;
  auto last = static_cast<uint32_t>(layers.size()) - 1;
  for (auto layer = static_cast<uint32_t>(layers.size()); layer-- > 0;) {
    const ShardPlan::Run ready = layers[layer].ready;
    if (ready.first == ready.last && layer > 0) continue;
    parts.push_back({layer, last});
    last = layer - 1;
  }
  return parts;
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
