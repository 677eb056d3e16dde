#include "tests/sim/virtual_computer.h"

#include <algorithm>
#include <memory>
#include <span>

#include "common/check.h"
#include "common/float_buffer.h"
#include "common/hash.h"
#include "tests/sim/reference.h"

namespace pando::sim {
namespace {

std::vector<float> CopyOf(const Blob& payload) {
  return {payload.floats().begin(), payload.floats().end()};
}

}  // namespace

std::optional<uint64_t> VirtualComputer::DigestIfWhole(const Copy& copy, bool needs_all) const {
  std::vector<std::span<const float>> shards;
  for (uint32_t s = 0; s < plan_.shards.shard_count(); ++s) {
    auto it = copy.find(ShardId(s));
    const bool is_read = needs_all || ShardId(s) != plan_.metric_shard();
    if (it == copy.end() && is_read) return std::nullopt;
    shards.push_back(it == copy.end() ? std::span<const float>()
                                      : std::span<const float>(it->second));
  }
  return DigestOfRead(plan_, shards);
}

void VirtualComputer::Compute(Step step, std::vector<MicroBatch> micro_batches) {
  PANDO_CHECK(!micro_batches.empty());
  calls_.push_back({step, std::move(micro_batches), ++ticket_});
  live_[ticket_] = step;
  StartNext();
}

void VirtualComputer::Abandon(Step from) {
  std::erase_if(live_, [&](const auto& call) {
    return call.second >= from && !verifications_.contains(call.first);
  });
  std::erase_if(calls_,
                [&](const Call& call) { return call.step >= from && !call.is_verification; });
  StartNext();
}

void VirtualComputer::Verify(Step step, MicroBatch micro_batch) {
  const auto later = std::ranges::find_if(calls_, [&](const Call& c) { return c.step > step; });
  calls_.insert(later, {step, {micro_batch}, ++ticket_, /*is_verification=*/true});
  live_[ticket_] = step;
  verifications_.insert(ticket_);
  StartNext();
}

void VirtualComputer::Forget() {
  ++generation_;
  live_.clear();
  verifications_.clear();
  calls_.clear();
  parameters_.clear();
  evaluation_copy_.clear();
  evaluation_version_ = Version(0);
  evaluation_.reset();
}

// Only a verification can come too late: whoever works at a step is needed for the next one.
bool VirtualComputer::DropIfSuperseded(const Call& call) {
  const bool is_superseded =
      parameters_.size() == 2 && VersionReadBy(call.step) < parameters_.begin()->first;
  if (!is_superseded || !call.is_verification) return false;
  calls_.pop_front();
  live_.erase(call.ticket);
  verifications_.erase(call.ticket);
  emit_(GradientHashed{call.step, call.micro_batches.front(), 0});
  return true;
}

void VirtualComputer::StartNext() {
  if (is_running_ || calls_.empty()) return;
  const Call call = calls_.front();
  if (DropIfSuperseded(call)) return StartNext();
  const auto copy = parameters_.find(VersionReadBy(call.step));
  if (copy == parameters_.end()) return;
  const std::optional<uint64_t> digest = DigestIfWhole(copy->second, false);
  if (!digest) return;  // the forward waits
  calls_.pop_front();
  is_running_ = true;
  const Micros time = micro_batch_time_ * static_cast<int64_t>(call.micro_batches.size());
  world_.After(time, [this, call, digest] {
    call.is_verification ? FinishVerification(call, *digest) : Finish(call, *digest);
  });
}

uint64_t VirtualComputer::HashOf(uint64_t digest, Step step, MicroBatch m) const {
  const std::vector<float> gradient = LeafGradient(plan_, digest, step, m);
  return std::max<uint64_t>(1, Hash64(std::as_bytes(std::span(gradient))));
}

void VirtualComputer::FinishVerification(const Call& call, uint64_t digest) {
  is_running_ = false;
  const MicroBatch m = call.micro_batches.front();
  verifications_.erase(call.ticket);
  if (live_.erase(call.ticket) > 0)
    emit_(GradientHashed{call.step, m, HashOf(digest, call.step, m)});
  StartNext();
}

// Backward: shards in reverse, one event each, so that others see them one by one.
void VirtualComputer::Finish(const Call& call, uint64_t digest) {
  const uint32_t shard_count = plan_.shards.shard_count();
  Micros at{0};
  for (TreeNode node : plan_.steps.Tree(call.step).Cover(call.micro_batches)) {
    auto sum = std::make_shared<FloatBuffer>(plan_.layout.float_count());
    std::ranges::copy(NodeGradient(plan_, digest, call.step, node), sum->data());
    for (uint32_t s = shard_count; s-- > 0;) {
      const ShardRange range = plan_.shards.range(ShardId(s));
      at += micro_batch_time_ / (4 * shard_count);
      world_.After(at, [this, call, node, s, sum, range] {
        if (!live_.contains(call.ticket)) return;
        emit_(GradientReady{call.step, node, ShardId(s), ToBlob(sum, range.first, range.size())});
      });
    }
  }
  world_.After(at, [this, call, digest] {
    is_running_ = false;
    if (live_.erase(call.ticket) > 0) {
      for (MicroBatch m : call.micro_batches) {
        if (plan_.IsVerified(call.step, m))
          emit_(GradientHashed{call.step, m, HashOf(digest, call.step, m)});
      }
      emit_(StepComputed{call.step});
    }
    StartNext();
  });
}

void VirtualComputer::ParametersArrived(ShardId shard, Version version, const Blob& payload) {
  parameters_[version][shard] = CopyOf(payload);
  while (parameters_.size() > 2) parameters_.erase(parameters_.begin());
  StartNext();
}

void VirtualComputer::EvaluateSlice(const Evaluate& request) {
  evaluation_ = request;
  if (evaluation_version_ != request.version) evaluation_copy_.clear();
  evaluation_version_ = request.version;
  TryEvaluate();
}

void VirtualComputer::EvaluationParametersArrived(ShardId shard, Version version,
                                                  const Blob& payload) {
  if (evaluation_version_ != version) evaluation_copy_.clear();
  evaluation_version_ = version;
  evaluation_copy_[shard] = CopyOf(payload);
  TryEvaluate();
}

void VirtualComputer::TryEvaluate() {
  if (!evaluation_ || evaluation_->version != evaluation_version_) return;
  const std::optional<uint64_t> digest = DigestIfWhole(evaluation_copy_, true);
  if (!digest) return;
  const EvaluationResult result = EvaluateSliceOf(*digest, *evaluation_);
  world_.After(micro_batch_time_, [this, result, generation = generation_] {
    if (generation == generation_) emit_(result);
  });
  evaluation_.reset();
}

}  // namespace pando::sim
