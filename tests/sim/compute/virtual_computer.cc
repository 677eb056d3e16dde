#include "tests/sim/compute/virtual_computer.h"

#include <algorithm>
#include <memory>

#include "common/check.h"
#include "tests/sim/reference.h"

namespace pando::sim {

VirtualComputer::VirtualComputer(World& world, const JobPlan& plan, Micros micro_batch_time,
                                 Hooks hooks)
    : world_(world),
      plan_(plan),
      micro_batch_time_(micro_batch_time),
      tickets_(std::move(hooks.post), std::move(hooks.deliver)),
      gradients_(plan, std::move(hooks.buffers), std::move(hooks.flips_bit)),
      evaluation_(world, plan, tickets_, [this] { return ComputingTime(1); }),
      layered_({world, plan, tickets_, gradients_}, ShardTime(), [this] {
        is_running_ = false;
        StartNext();
      }) {}

// ---- requests ----------------------------------------------------------------------------------

void VirtualComputer::Compute(Step step, std::vector<MicroBatch> micro_batches) {
  PANDO_CHECK(!micro_batches.empty());
  // A forward that waits for parameters stays the first.
  const long taken = is_running_ || calls_.empty() ? 0 : 1;
  const auto later = std::find_if(calls_.begin() + taken, calls_.end(),
                                  [&](const Call& call) { return call.step > step; });
  calls_.insert(later, {step, std::move(micro_batches), tickets_.Issue(step, CallKind::kStep)});
  StartNext();
}

void VirtualComputer::Abandon(Step from) {
  tickets_.Abandon(from);
  std::erase_if(
      calls_, [&](const Call& call) { return call.kind == CallKind::kStep && call.step >= from; });
  // A given gradient may count: if it is hashed, it is hashed to its end (P41).
  const Call* backward = layered_.backward_call();
  if (backward != nullptr && !tickets_.IsOpen(backward->ticket) && !layered_.has_hashes())
    DropBackward();
  StartNext();
}

void VirtualComputer::Verify(Step step, MicroBatch micro_batch) {
  const auto later = std::ranges::find_if(calls_, [&](const Call& c) { return c.step > step; });
  const uint64_t ticket = tickets_.Issue(step, CallKind::kVerification);
  calls_.insert(later, {step, {micro_batch}, ticket, CallKind::kVerification});
  StartNext();
}

void VirtualComputer::Forget() {
  if (layered_.backward_call() != nullptr) is_running_ = false;
  tickets_.Forget();
  calls_.clear();
  gradients_.Forget();
  parameters_.clear();
  evaluation_.Forget();
  layered_.Forget();
}

void VirtualComputer::ParametersArrived(ShardId shard, Version version, const Blob& payload) {
  std::vector<float> floats = Received(plan_.pulls, shard, payload);
  if (is_layered()) {
    layered_.Arrived(shard, version, floats);
    return StartNext();
  }
  parameters_[version][shard] = std::move(floats);
  while (parameters_.size() > plan_.steps.versions_kept()) parameters_.erase(parameters_.begin());
  StartNext();
}

void VirtualComputer::ParametersGone(ParameterUse use, Version version) {
  if (use == ParameterUse::kEvaluation) return evaluation_.ParametersGone();
  layered_.SetGone(version);
  for (const Call& call : calls_) {
    if (layered_.IsGone(call) && call.kind == CallKind::kVerification) ReportNone(call);
  }
  std::erase_if(calls_, [this](const Call& call) { return layered_.IsGone(call); });
  const Call* backward = layered_.backward_call();
  if (backward != nullptr && layered_.IsGone(*backward)) {
    if (backward->kind == CallKind::kVerification) ReportNone(*backward);
    DropBackward();
  }
  StartNext();
}

void VirtualComputer::EvaluateSlice(const Evaluate& request) { evaluation_.EvaluateSlice(request); }

void VirtualComputer::EvaluationParametersArrived(ShardId shard, Version version,
                                                  const Blob& payload) {
  const auto floats = payload.floats();
  evaluation_.ParametersArrived(shard, version, {floats.begin(), floats.end()});
}

// ---- time --------------------------------------------------------------------------------------

void VirtualComputer::SlowDown(int64_t factor, Micros until) {
  slowness_ = factor;
  slow_until_ = until;
}

Micros VirtualComputer::ComputingTime(size_t micro_batches) const {
  const Micros time = micro_batch_time_ * static_cast<int64_t>(micro_batches);
  return world_.now() < slow_until_ ? time * slowness_ : time;
}

std::string VirtualComputer::StateText() const {
  std::string text = is_running_ ? "running;" : "idle;";
  for (const Call& call : calls_) {
    text += call.kind == CallKind::kVerification ? " verify " : " step ";
    text += std::to_string(call.step.value()) + "x" + std::to_string(call.micro_batches.size());
  }
  text += "; holds";
  for (const auto& [version, copy] : parameters_) {
    text += " " + std::to_string(version.value()) + ":" + std::to_string(copy.size());
  }
  return text;
}

// ---- work --------------------------------------------------------------------------------------

// Only a verification can come too late: a worker of a step is needed for the next one.
bool VirtualComputer::DropIfSuperseded(const Call& call) {
  const bool is_superseded = parameters_.size() == plan_.steps.versions_kept() &&
                             plan_.steps.VersionReadBy(call.step) < parameters_.begin()->first;
  if (!is_superseded || call.kind != CallKind::kVerification) return false;
  ReportNone(call);
  calls_.pop_front();
  return true;
}

void VirtualComputer::ReportNone(const Call& call) {
  const GradientHashed none{call.step, call.micro_batches.front(), 0};
  world_.After(Micros(1),
               [this, ticket = call.ticket, none] { tickets_.Emit(ticket, Which::kLast, none); });
}

void VirtualComputer::StartNext() {
  if (is_layered()) return StartNextLayered();
  if (is_running_ || calls_.empty()) return;
  const Call call = calls_.front();
  if (DropIfSuperseded(call)) return StartNext();
  const auto copy = parameters_.find(plan_.steps.VersionReadBy(call.step));
  if (copy == parameters_.end()) return;
  const std::optional<uint64_t> digest =
      DigestIfWhole(plan_, copy->second, ShardsRead::kOfTraining);
  if (!digest) return;  // the forward waits
  calls_.pop_front();
  is_running_ = true;
  world_.After(ComputingTime(call.micro_batches.size()), [this, call, digest] {
    call.kind == CallKind::kVerification ? FinishVerification(call, *digest)
                                         : Finish(call, *digest);
  });
}

void VirtualComputer::FinishVerification(const Call& call, uint64_t digest) {
  is_running_ = false;
  tickets_.Emit(call.ticket, Which::kLast,
                gradients_.Hash(call.step, call.micro_batches.front(), digest));
  StartNext();
}

// Backward: shards in reverse, one event each, so that others see them one by one.
void VirtualComputer::Finish(const Call& call, uint64_t digest) {
  gradients_.BeginStep(call.step, call.micro_batches);
  Micros at{0};
  for (const auto& sum : gradients_.SumNodes(call.step, call.micro_batches, digest)) {
    for (uint32_t s = plan_.shards.shard_count(); s-- > 0;) {
      at += ShardTime();
      world_.After(at, [this, call, sum, shard = ShardId(s)] {
        tickets_.Emit(
            call.ticket, Which::kMore,
            GradientReady{call.step, sum.first, shard, gradients_.Encode(call.step, sum, shard)});
      });
    }
  }
  std::vector<GradientHashed> hashes;  // of what leaves, abandoned or not
  if (tickets_.IsOpen(call.ticket))
    hashes = gradients_.HashVerified(call.step, call.micro_batches, digest);
  gradients_.EndStep();
  world_.After(at, [this, call, hashes = std::move(hashes)] {
    is_running_ = false;
    for (const GradientHashed& hashed : hashes) tickets_.Emit(call.ticket, Which::kMore, hashed);
    tickets_.Emit(call.ticket, Which::kLast, StepComputed{call.step});
    StartNext();
  });
}

// ---- layer residency ---------------------------------------------------------------------------

void VirtualComputer::StartNextLayered() {
  layered_.KeepForward(calls_.empty() ? 0 : calls_.front().ticket);
  if (is_running_ || calls_.empty()) return;
  const Call call = calls_.front();
  const std::optional<uint64_t> digest = layered_.GoForward(call);
  if (!digest) return;
  calls_.pop_front();
  is_running_ = true;
  world_.After(ComputingTime(call.micro_batches.size()),
               [this, call, digest] { FinishLayered(call, *digest); });
}

void VirtualComputer::FinishLayered(const Call& call, uint64_t digest) {
  if (call.kind == CallKind::kStep) gradients_.BeginStep(call.step, call.micro_batches);
  layered_.PrepareBackward(call, digest);
  gradients_.EndStep();
  const bool is_wanted = tickets_.IsOpen(call.ticket);
  if (is_wanted && !layered_.IsGone(call)) return layered_.StartBackward();
  if (is_wanted && call.kind == CallKind::kVerification) ReportNone(call);
  DropBackward();
  StartNext();
}

void VirtualComputer::DropBackward() {
  layered_.DropBackward();
  is_running_ = false;
}

}  // namespace pando::sim
