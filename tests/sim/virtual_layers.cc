// The virtual computer with layer residency: a forward, a backward and an evaluation that take the
// shards one by one, and what happens to them when a version is gone.
#include <algorithm>
#include <memory>
#include <utility>

#include "common/float_buffer.h"
#include "common/hash.h"
#include "tests/sim/reference.h"
#include "tests/sim/virtual_computer.h"

namespace pando::sim {
namespace {

// All shards that a training forward reads.
std::vector<ShardId> ReadShards(const JobPlan& plan) {
  std::vector<ShardId> order;
  for (uint32_t s = 0; s < plan.shards.shard_count(); ++s) {
    if (ShardId(s) != plan.metric_shard()) order.emplace_back(s);
  }
  return order;
}

}  // namespace

LayerPass VirtualComputer::MakePass(uint64_t ticket, ParameterUse use, Version version,
                                    std::vector<ShardId> order) {
  return LayerPass(version, std::move(order), [this, ticket, use, version](ShardId shard) {
    Emit(ticket, Which::kMore, ParametersWanted{use, version, {shard}});
  });
}

void VirtualComputer::ParametersGone(ParameterUse use, Version version) {
  if (use == ParameterUse::kEvaluation) {
    evaluation_.reset();
    evaluation_pass_.reset();
    return;
  }
  gone_ = std::max(gone_.value_or(version), version);
  for (const Call& call : calls_) {
    if (IsGone(call) && call.kind == Kind::kVerification) TellOfNone(call);
  }
  std::erase_if(calls_, [this](const Call& call) { return IsGone(call); });
  if (backward_ && IsGone(backward_->call)) {
    if (backward_->call.kind == Kind::kVerification) TellOfNone(backward_->call);
    DropBackward();
  }
  StartNext();
}

// ---- training ----------------------------------------------------------------------------------

void VirtualComputer::StartNextLayered() {
  if (forward_ && (calls_.empty() || calls_.front().ticket != forward_ticket_)) forward_.reset();
  if (is_running_ || calls_.empty()) return;
  const Call call = calls_.front();
  if (!forward_) {
    forward_ticket_ = call.ticket;
    forward_digest_ = 0;
    forward_hashes_.clear();
    forward_.emplace(MakePass(call.ticket, ParameterUse::kTraining, VersionReadBy(call.step),
                              ReadShards(plan_)));
    forward_->Start();
  }
  for (; forward_->is_ready(); forward_->DropAndGoOn()) {
    const auto bytes = std::as_bytes(forward_->floats());
    forward_digest_ = Hash64(bytes, forward_digest_);
    forward_hashes_[forward_->shard()] = Hash64(bytes);
  }
  if (!forward_->is_done()) return;
  forward_.reset();
  calls_.pop_front();
  is_running_ = true;
  world_.After(ComputingTime(call.micro_batches.size()),
               [this, call, digest = forward_digest_] { FinishLayered(call, digest); });
}

// Backward: shards in reverse, of which each is read again.
void VirtualComputer::FinishLayered(const Call& call, uint64_t digest) {
  for (MicroBatch m : call.micro_batches) {
    if (call.kind == Kind::kStep && hooks_.flips_bit(call.step, m))
      flipped_ = std::pair(call.step, m);
  }
  std::vector<ShardId> order = ReadShards(plan_);
  std::ranges::reverse(order);
  backward_.emplace(Backward{
      MakePass(call.ticket, ParameterUse::kTraining, VersionReadBy(call.step), std::move(order)),
      call,
      digest,
      {},
      {},
      false});
  const auto leaf = [&](MicroBatch m) { return MakeGradient(digest, call.step, m); };
  const MicroBatchTree tree = plan_.steps.Tree(call.step);
  if (call.kind == Kind::kVerification) {
    const MicroBatch m = call.micro_batches.front();
    backward_->hashes.push_back({call.step, m, HashGradient(digest, call.step, m)});
  } else {
    backward_->hashes = HashGradients(call, digest);
    for (TreeNode node : plan_.NodesToPush(call.step, call.micro_batches)) {
      auto sum = std::make_shared<FloatBuffer>(plan_.layout.float_count());
      std::ranges::copy(NodeGradient(tree, node, leaf), sum->data());
      backward_->sums.emplace_back(node, std::move(sum));
    }
  }
  flipped_.reset();  // it was that once
  const bool is_wanted = issued_.contains(call.ticket);
  if (!is_wanted || IsGone(call)) {
    if (is_wanted && call.kind == Kind::kVerification) TellOfNone(call);
    DropBackward();
    return StartNext();
  }
  EmitShard(*backward_, plan_.metric_shard());
  backward_->pass.Start();
}

void VirtualComputer::GoBackward() {
  Backward& backward = *backward_;
  if (backward.is_resting || !backward.pass.is_ready()) return;
  const ShardId shard = backward.pass.shard();
  const uint64_t hash = Hash64(std::as_bytes(backward.pass.floats()));
  if (hash != forward_hashes_.at(shard)) {  // other parameters than before: other bits
    for (auto& [node, sum] : backward.sums) sum->data()[plan_.shards.range(shard).first] += 1.0f;
  }
  EmitShard(backward, shard);
  backward.pass.DropAndGoOn();
  backward.is_resting = true;
  world_.After(micro_batch_time_ / (4 * plan_.shards.shard_count()),
               [this, ticket = backward.call.ticket] {
                 if (!backward_ || backward_->call.ticket != ticket) return;
                 backward_->is_resting = false;
                 backward_->pass.is_done() ? EndBackward() : GoBackward();
               });
}

void VirtualComputer::EmitShard(const Backward& backward, ShardId shard) {
  const Step step = backward.call.step;
  for (const auto& [node, sum] : backward.sums) {
    Emit(backward.call.ticket, Which::kMore,
         GradientReady{step, node, shard, Encoded(step, node, shard, *sum)});
  }
}

void VirtualComputer::EndBackward() {
  const Call call = backward_->call;
  const bool is_step = call.kind == Kind::kStep;
  for (const GradientHashed& hashed : backward_->hashes)
    Emit(call.ticket, is_step ? Which::kMore : Which::kLast, hashed);
  if (is_step) Emit(call.ticket, Which::kLast, StepComputed{call.step});
  DropBackward();
  StartNext();
}

void VirtualComputer::DropBackward() {
  backward_.reset();
  is_running_ = false;
}

// ---- evaluation --------------------------------------------------------------------------------

void VirtualComputer::TryEvaluateLayered() {
  if (!evaluation_ || !evaluation_pass_) return;
  for (; evaluation_pass_->is_ready(); evaluation_pass_->DropAndGoOn()) {
    if (evaluation_pass_->shard() == plan_.metric_shard()) continue;
    evaluation_digest_ = Hash64(std::as_bytes(evaluation_pass_->floats()), evaluation_digest_);
  }
  if (!evaluation_pass_->is_done()) return;
  evaluation_pass_.reset();
  TellResult(evaluation_ticket_, evaluation_digest_);
}

}  // namespace pando::sim
