#include "train/micro_batch_pass.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "common/hash.h"
#include "plan/loss_scale.h"
#include "train/bit_flip.h"
#include "train/gpu/device_codec.h"

namespace pando {
namespace {

using Clock = std::chrono::steady_clock;
using What = StepTimeline::What;

// The host's memory is the device's.
class HostLauncher : public PassLauncher {
 public:
  explicit HostLauncher(const LauncherParts& parts)
      : network_(parts.network), timeline_(parts.timeline) {}

  Status Forward(const std::shared_ptr<const Batch>& batch, MicroBatchName name,
                 PassParameters& parameters) override {
    network_.SetBatch(*batch, name, Mode::kTrain);
    timeline_.Did(StepTimeline::What::kPrepare);
    for (uint32_t layer = 0; layer < network_.layer_count(); ++layer) {
      PANDO_RETURN_IF_ERROR(parameters.Await(layer));
      network_.Forward(layer, parameters.values());
      timeline_.DidForward(layer);
    }
    return {};
  }

  std::optional<BatchScore> Score(float* metrics) override {
    network_.WriteScore(metrics);
    return network_.Score();
  }

  Status Backward(const BackwardPart& part, PassParameters& parameters, float* gradients) override {
    for (uint32_t layer = part.last + 1; layer-- > part.first;) {
      PANDO_RETURN_IF_ERROR(parameters.Await(BackwardTurn(network_, layer)));
      network_.Backward(layer, parameters.values(), gradients);
      timeline_.DidBackward(layer);
    }
    return {};
  }

  std::optional<CompleteSum> BringHome(CompleteSum sum) override { return sum; }
  Result<PassResults> TakeResults(Wait, const PassParameters&) override { return PassResults(); }
  void End() override {}

 private:
  Network& network_;
  StepTimeline& timeline_;
};

std::unique_ptr<PassLauncher> MakePassLauncher(const LauncherParts& parts) {
  if (parts.device.kind == DeviceKind::kCpu) return std::make_unique<HostLauncher>(parts);
  return MakeGpuLauncher(parts);
}

}  // namespace

MicroBatchPass::MicroBatchPass(Network& network, Device device, const Context& context)
    : context_(context),
      device_(device),
      reads_(PlanTrainingReads(context.plan, network)),
      parts_(PlanBackwardParts(context.plan, network)),
      metric_shards_(MetricShards(context.plan)),
      launcher_(MakePassLauncher({network, device, context.plan,
                                  DeviceCodec::CanCode(device, context.plan.pushes)
                                      ? context.encoded
                                      : context.host_gradients,
                                  context.timeline, context.sums_stay,
                                  context.parameters.is_layered(), context.next_batch})),
      round_(context.plan.job.local_steps > 1 ? std::make_unique<LocalRound>(network, context.plan)
                                              : nullptr),
      shard_hashes_(context.plan.shards.shard_count()) {}

Status MicroBatchPass::Run(const Work& work) {
  const auto start = Clock::now();
  auto hold = context_.parameters.HoldVersion(context_.plan.steps.VersionReadBy(work.step),
                                              [&] { return work.control.IsAbandoned(false); });
  if (!hold.ok()) return hold.status();
  PANDO_ASSIGN_OR_RETURN(auto batch, context_.batches.Take(work.step, work.micro_batch));
  context_.timeline.Did(What::kAwaitSamples);
  work_ = &work;
  batch_ = batch;
  PassParameters parameters(*std::move(hold), context_.parameters.is_layered(), reads_,
                            work.control, context_.timeline);
  const Status computed = round_ != nullptr ? ComputeRound(parameters) : Compute(parameters);
  launcher_->End();
  batch_ = nullptr;
  encoded_ = nullptr;
  if (!computed.ok()) return computed;
  if (work.hash != nullptr)
    *work.hash = std::max<uint64_t>(1, Hash64(std::as_bytes(std::span(shard_hashes_))));
  computing_time_ = Clock::now() - start - parameters.waited();
  return {};
}

// Each shard leaves as soon as it is final, while backward makes the rest. With layer residency
// backward fetches the layers' parameters a second time; a GPU has kept them.
Status MicroBatchPass::Compute(PassParameters& parameters) {
  PANDO_ASSIGN_OR_RETURN(float scale, LossScaleFor(parameters));
  const MicroBatchName name{context_.plan.job.seed, work_->step, work_->micro_batch, scale};
  PANDO_RETURN_IF_ERROR(launcher_->Forward(batch_, name, parameters));
  // Not earlier: a forward that waits for parameters needs no gradient vector.
  const SharedBuffer gradients = context_.gradients.Take();
  PANDO_RETURN_IF_ERROR(CheckScore(launcher_->Score(gradients->data() + MetricsAt())));
  context_.timeline.Did(What::kScore);
  AddToSum(metric_shards_, gradients);
  if (work_->sum != nullptr) parameters.SetPartlyOut();
  for (const BackwardPart& part : parts_) {
    PANDO_RETURN_IF_ERROR(EmitResults(PassLauncher::Wait::kNo, parameters));
    PANDO_RETURN_IF_ERROR(launcher_->Backward(part, parameters, gradients->data()));
    AddToSum(part.ready, gradients);
  }
  return EmitResults(PassLauncher::Wait::kYes, parameters);
}

// A round overwrites local parameters from its first step on, so it waits for the whole version.
Status MicroBatchPass::ComputeRound(PassParameters& parameters) {
  const ShardPlan::Run all{0, context_.plan.shards.shard_count()};
  for (uint32_t s = all.first; s < all.last; ++s)
    PANDO_RETURN_IF_ERROR(parameters.AwaitShard(ShardId(s)));
  const SharedBuffer gradients = context_.gradients.Take();
  const MicroBatchName name{context_.plan.job.seed, work_->step, work_->micro_batch};
  PANDO_ASSIGN_OR_RETURN(const BatchScore score,
                         round_->Run(*batch_, name, parameters.values(), gradients->span(),
                                     [&] { return parameters.CheckWanted(); }));
  context_.timeline.DidBackward(0);
  PANDO_RETURN_IF_ERROR(CheckScore(score));
  if (work_->sum != nullptr) parameters.SetPartlyOut();
  AddToSum(all, gradients);
  return Status();
}

// The hash comes first, because TreeSum adds into the gradients. On a CPU each sum that a shard
// completes leaves before the next shard is added. The last shard is first, as in backward.
void MicroBatchPass::AddToSum(ShardPlan::Run shards, const SharedBuffer& gradients) {
  FlipBit(work_->step, work_->micro_batch, shards, *gradients);
  if (work_->hash != nullptr) Hash(shards, *gradients);
  if (work_->sum == nullptr) return;
  for (uint32_t s = shards.last; s-- > shards.first;) {
    std::optional<CompleteSum> sum = work_->sum->Add(work_->micro_batch, ShardId(s), gradients);
    if (sum) sum = launcher_->BringHome(*std::move(sum));
    if (sum) Emit(*std::move(sum));
  }
  context_.timeline.Did(What::kSum);
}

// Emits the sums that have come from a GPU.
Status MicroBatchPass::EmitResults(PassLauncher::Wait wait, const PassParameters& parameters) {
  while (true) {
    PANDO_ASSIGN_OR_RETURN(PassResults results, launcher_->TakeResults(wait, parameters));
    if (results.is_empty()) return {};
    PANDO_RETURN_IF_ERROR(CheckScore(results.score));
    for (CompleteSum& sum : results.sums) Emit(std::move(sum));
  }
}

void MicroBatchPass::Emit(CompleteSum sum) {
  work_->sink(work_->ticket, GradientReady{work_->step, sum.node, sum.shard,
                                           Encode(sum.shard, std::move(sum.payload))});
}

// A GPU may have encoded it already. The encoded shards of a pass share one vector, since a pass
// completes at most one sum of each.
Blob MicroBatchPass::Encode(ShardId shard, Blob sum) {
  const PayloadPlan& pushes = context_.plan.pushes;
  if (pushes.is_exact() || DeviceCodec::CanCode(device_, pushes)) return sum;
  if (encoded_ == nullptr) encoded_ = context_.encoded.Take();
  const size_t first = pushes.offset(shard);
  const size_t count = pushes.PayloadBytes(shard) / sizeof(float);
  const auto encoded = std::as_writable_bytes(encoded_->span().subspan(first, count));
  if (pushes.has_feedback()) {
    context_.feedback.Encode(work_->step, work_->micro_batch, shard, sum.floats(), encoded);
  } else {
    pushes.codec(shard)->Encode(sum.floats(), encoded);
  }
  return ToBlob(encoded_, first, count);
}

Status MicroBatchPass::CheckScore(const std::optional<BatchScore>& score) const {
  if (!score || std::isfinite(score->loss_sum)) return {};
  const Job& job = context_.plan.job;
  const bool may_overflow = job.push_codec == PayloadCodec::kFp16;
  return Internal(fmt::format(
      "the loss is not a finite number in step {}, micro-batch {}: {}. Try a "
      "lower learning rate ([optimizer] lr is {:g}) or a warm-up ([schedule] warmup_steps){}",
      work_->step.value(), work_->micro_batch.value(), kDivergedText, job.optimizer.lr,
      may_overflow ? "; or sums of gradients exceed 65504, the most that train.codec fp16 holds: "
                     "try --codec bf16"
                   : ""));
}

// The scale is part of the version (P1).
Result<float> MicroBatchPass::LossScaleFor(PassParameters& parameters) {
  const LossScaleOptions& options = context_.plan.job.optimizer.loss_scale;
  if (!options.is_on) return 1.0f;
  const ShardId shard = context_.plan.metric_shard();
  PANDO_RETURN_IF_ERROR(parameters.AwaitShard(shard));
  const size_t at = MetricsAt() - context_.plan.shards.range(shard).first;
  const std::vector<float> values = parameters.ReadShard(shard);
  const LossScale now = ReadLossScale(options, {values.data() + at, kMetricSlotCount});
  if (now.hysteresis > 0 || options.loss_scale > 0) return now.scale;
  return Internal(fmt::format(
      "gradients overflow half floats at the smallest loss scale ({:g}, fp16.min_loss_scale) in "
      "step {}: training has diverged, or the model is not for fp16. Try --precision bf16, or a "
      "lower learning rate",
      now.scale, work_->step.value() - 1));
}

// A GPU's gradients are copied to the host for the hash; few micro-batches are hashed.
void MicroBatchPass::Hash(ShardPlan::Run shards, FloatBuffer& gradients) {
  for (uint32_t s = shards.first; s < shards.last; ++s) {
    const ShardRange& range = context_.plan.shards.range(ShardId(s));
    std::span<const float> floats = gradients.span().subspan(range.first, range.size());
    FloatBuffer host;
    if (device_.kind != DeviceKind::kCpu) {
      host = FloatBuffer(range.size());
      Download(device_, floats.data(), std::as_writable_bytes(host.span()));
      floats = host.span();
    }
    shard_hashes_[s] = Hash64(std::as_bytes(floats));
  }
}

size_t MicroBatchPass::MetricsAt() const {
  const TensorLayout& layout = context_.plan.layout;
  return layout.offset(layout.tensor_count() - 1);
}

}  // namespace pando
