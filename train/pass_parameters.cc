#include "train/pass_parameters.h"

#include <algorithm>

#include "common/check.h"

namespace pando {
namespace {

// The shards that begin at or after float `first` and come before shard `ready_before`.
ShardPlan::Run ShardsFrom(const ShardPlan& shards, size_t first, uint32_t ready_before) {
  const auto begin = std::ranges::lower_bound(shards.ranges(), first, {}, &ShardRange::first);
  return {static_cast<uint32_t>(begin - shards.ranges().begin()), ready_before};
}

LayerReads ReadsFor(const JobPlan& plan, TensorRun tensors) {
  if (tensors.first == tensors.last) return {};
  return {plan.shards.Covering(plan.layout.offset(tensors.first), plan.layout.offset(tensors.last)),
          {}};
}

std::vector<LayerReads> WithNext(std::vector<LayerReads> reads) {
  ShardPlan::Run next;
  for (size_t i = reads.size(); i-- > 0;) {
    reads[i].next = next;
    if (reads[i].now.first != reads[i].now.last) next = reads[i].now;
  }
  return reads;
}

}  // namespace

ShardPlan::Run MetricShards(const JobPlan& plan) {
  return ShardsFrom(plan.shards, plan.layout.offset(plan.layout.tensor_count() - 1),
                    plan.shards.shard_count());
}

// After a layer, all floats from the layer's first one on are final.
std::vector<BackwardPart> PlanBackwardParts(const JobPlan& plan, const Network& network) {
  std::vector<BackwardPart> parts;
  uint32_t ready_before = MetricShards(plan).first;
  uint32_t last = network.layer_count() - 1;
  for (uint32_t layer = network.layer_count(); layer-- > 0;) {
    const TensorRun tensors = network.LayerTensors(layer);
    ShardPlan::Run ready;
    if (tensors.first != tensors.last) {
      ready = ShardsFrom(plan.shards, plan.layout.offset(tensors.first), ready_before);
      ready_before = ready.first;
    }
    if (ready.first == ready.last && layer > 0) continue;
    parts.push_back({layer, last, ready});
    last = layer - 1;
  }
  PANDO_CHECK(ready_before == 0);  // every shard becomes ready: layers cover all tensors
  return parts;
}

std::vector<LayerReads> PlanTrainingReads(const JobPlan& plan, const Network& network) {
  std::vector<LayerReads> reads;
  for (uint32_t layer = 0; layer < network.layer_count(); ++layer)
    reads.push_back(ReadsFor(plan, network.TrainingTensors(layer)));
  for (uint32_t layer = network.layer_count(); layer-- > 0;)
    reads.push_back(ReadsFor(plan, network.BackwardTensors(layer)));
  return WithNext(std::move(reads));
}

std::vector<LayerReads> PlanEvaluationReads(const JobPlan& plan, const Network& network) {
  std::vector<LayerReads> reads;
  for (uint32_t layer = 0; layer < network.layer_count(); ++layer)
    reads.push_back(ReadsFor(plan, network.LayerTensors(layer)));
  return WithNext(std::move(reads));
}

// Without layer residency forward has waited for all that backward reads.
Status PassParameters::Await(size_t turn) {
  PANDO_RETURN_IF_ERROR(CheckWanted());
  const LayerReads& reads = reads_[turn];
  if (turn < reads_.size() / 2)
    return Advance(reads.now, reads.next, [this] { return control_.IsInterrupted(); });
  if (!is_layered_) return {};
  return Advance(reads.now, reads.next, [this] { return control_.IsAbandoned(is_partly_out_); });
}

Status PassParameters::AwaitShard(ShardId shard) {
  return Advance({shard.value(), shard.value() + 1}, reads_.front().now,
                 [this] { return control_.IsInterrupted(); });
}

Status PassParameters::CheckWanted() const {
  if (control_.IsAbandoned(is_partly_out_)) return Interrupted("the work was abandoned");
  return {};
}

Status PassParameters::Advance(ShardPlan::Run now, ShardPlan::Run next,
                               const std::function<bool()>& interrupted) {
  const auto start = std::chrono::steady_clock::now();
  const Status arrived = hold_.Advance(
      now, next, interrupted,
      [this](const std::vector<ShardId>& shards) { control_.FetchParameters(shards); });
  waited_ += std::chrono::steady_clock::now() - start;
  timeline_.Did(StepTimeline::What::kAwaitParameters);
  return arrived;
}

}  // namespace pando
