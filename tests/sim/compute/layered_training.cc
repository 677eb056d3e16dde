#include "tests/sim/compute/layered_training.h"

#include <algorithm>
#include <span>
#include <utility>

#include "common/hash.h"
#include "tests/sim/compute/parameter_copy.h"

namespace pando::sim {

using Which = CallTickets::Which;

void LayeredTraining::Arrived(ShardId shard, Version version, const std::vector<float>& floats) {
  if (forward_) forward_->Arrived(shard, version, floats);
  if (!backward_) return;
  backward_->pass.Arrived(shard, version, floats);
  GoBackward();
}

void LayeredTraining::Forget() {
  gone_.reset();
  forward_.reset();
  backward_.reset();
}

// ---- forward -----------------------------------------------------------------------------------

void LayeredTraining::KeepForward(uint64_t ticket) {
  if (forward_ticket_ != ticket) forward_.reset();
}

std::optional<uint64_t> LayeredTraining::GoForward(const Call& call) {
  if (!forward_) {
    forward_ticket_ = call.ticket;
    forward_digest_ = 0;
    forward_hashes_.clear();
    forward_.emplace(parts_.tickets.MakePass(call.ticket, ParameterUse::kTraining,
                                             parts_.plan.steps.VersionReadBy(call.step),
                                             ListShards(parts_.plan, ShardsRead::kOfTraining)));
    forward_->Start();
  }
  for (; forward_->is_ready(); forward_->DropAndGoOn()) {
    const auto bytes = std::as_bytes(forward_->floats());
    forward_digest_ = Hash64(bytes, forward_digest_);
    forward_hashes_[forward_->shard()] = Hash64(bytes);
  }
  if (!forward_->is_done()) return std::nullopt;
  forward_.reset();
  return forward_digest_;
}

// ---- backward: shards in reverse, of which each is read again ----------------------------------

void LayeredTraining::PrepareBackward(const Call& call, uint64_t digest) {
  std::vector<ShardId> order = ListShards(parts_.plan, ShardsRead::kOfTraining);
  std::ranges::reverse(order);
  backward_.emplace(Backward{
      parts_.tickets.MakePass(call.ticket, ParameterUse::kTraining,
                              parts_.plan.steps.VersionReadBy(call.step), std::move(order)),
      call,
      {},
      {},
      false});
  const VirtualGradients& gradients = parts_.gradients;
  if (call.kind == CallKind::kVerification) {
    backward_->hashes = {gradients.Hash(call.step, call.micro_batches.front(), digest)};
    return;
  }
  if (parts_.tickets.IsOpen(call.ticket))
    backward_->hashes = gradients.HashVerified(call.step, call.micro_batches, digest);
  backward_->sums = gradients.SumNodes(call.step, call.micro_batches, digest);
}

void LayeredTraining::StartBackward() {
  EmitShard(parts_.plan.metric_shard());
  backward_->pass.Start();
}

void LayeredTraining::GoBackward() {
  Backward& backward = *backward_;
  if (backward.is_resting || !backward.pass.is_ready()) return;
  const ShardId shard = backward.pass.shard();
  const uint64_t hash = Hash64(std::as_bytes(backward.pass.floats()));
  if (hash != forward_hashes_.at(shard)) {  // other parameters than before: other bits
    for (auto& [node, sum] : backward.sums)
      sum->data()[parts_.plan.shards.range(shard).first] += 1.0f;
  }
  EmitShard(shard);
  backward.pass.DropAndGoOn();
  backward.is_resting = true;
  parts_.world.After(shard_time_, [this, ticket = backward.call.ticket] {
    if (!backward_ || backward_->call.ticket != ticket) return;
    backward_->is_resting = false;
    backward_->pass.is_done() ? EndBackward() : GoBackward();
  });
}

void LayeredTraining::EmitShard(ShardId shard) {
  const Step step = backward_->call.step;
  for (const VirtualGradients::NodeSum& sum : backward_->sums) {
    parts_.tickets.Emit(
        backward_->call.ticket, Which::kMore,
        GradientReady{step, sum.first, shard, parts_.gradients.Encode(step, sum, shard)});
  }
}

void LayeredTraining::EndBackward() {
  const Call call = backward_->call;
  const bool is_step = call.kind == CallKind::kStep;
  for (const GradientHashed& hashed : backward_->hashes)
    parts_.tickets.Emit(call.ticket, is_step ? Which::kMore : Which::kLast, hashed);
  if (is_step) parts_.tickets.Emit(call.ticket, Which::kLast, StepComputed{call.step});
  DropBackward();
  on_done_();
}

}  // namespace pando::sim
