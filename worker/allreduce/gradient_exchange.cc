#include "worker/allreduce/gradient_exchange.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/float_env.h"

namespace pando {

GradientExchange::GradientExchange(const JobPlan& plan, uint32_t rank, ExchangePort& port,
                                   Device device, Timeline* timeline)
    : plan_(plan),
      rank_(rank),
      port_(port),
      buckets_(PlanBuckets(plan.shards)),
      timeline_(timeline, buckets_),
      bucket_of_(plan.shards.shard_count()) {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    for (uint32_t s = buckets_[b].shards.first; s < buckets_[b].shards.last; ++s) bucket_of_[s] = b;
  }
  const size_t count = plan.layout.float_count();
  const bool is_pinned = device.kind == DeviceKind::kCuda;
  for (SharedBuffer& flat : flats_) {
    flat =
        std::make_shared<FloatBuffer>(is_pinned ? PinnedFloats(device, count) : FloatBuffer(count));
  }
}

GradientExchange::~GradientExchange() { Stop(); }

void GradientExchange::Begin(Step first, std::function<size_t(Step)> node_count) {
  PANDO_CHECK(!thread_.joinable());
  first_ = first;
  node_count_ = std::move(node_count);
  has_ended_ = false;
  whole_ = VersionReadBy(first);
  thread_ = std::thread([this] { Run(); });
}

void GradientExchange::Stop() {
  RequestStop();
  if (thread_.joinable()) thread_.join();
}

bool GradientExchange::StopWithin(std::chrono::milliseconds patience) {
  RequestStop();
  {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, patience, [this] { return has_ended_; })) return false;
  }
  Stop();
  return true;
}

void GradientExchange::RequestStop() {
  const std::lock_guard lock(mutex_);
  is_stopping_ = true;
  if (group_ != nullptr) group_->Close();
  changed_.notify_all();
}

// ---- what the computing threads bring -----------------------------------------------------------

// The first call for a step begins it: a contribution, or the exchange's thread.
GradientExchange::StepState& GradientExchange::StateFor(Step step) {
  StepState& state = states_[step.value() % states_.size()];
  if (state.step == step) return state;
  state.step = step;
  state.node_count = node_count_(step);
  state.parts.assign(plan_.shards.shard_count(), {});
  state.missing_counts.clear();
  const bool has_none = state.node_count == 0;  // fewer samples than ranks
  for (const Bucket& bucket : buckets_)
    state.missing_counts.push_back(has_none ? 0 : bucket.shards.last - bucket.shards.first);
  if (has_none) std::fill_n(FlatFor(step), plan_.layout.float_count(), 0.0f);
  return state;
}

void GradientExchange::Add(Step step, TreeNode node, ShardId shard, const Blob& sum) {
  std::map<TreeNode, Blob> parts;
  {
    const std::lock_guard lock(mutex_);
    StepState& state = StateFor(step);
    std::map<TreeNode, Blob>& held = state.parts[shard.value()];
    held.emplace(node, sum);
    if (held.size() < state.node_count) return;
    parts.swap(held);
  }
  float* out = FlatFor(step) + plan_.shards.range(shard).first;
  for (auto part = parts.begin(); part != parts.end(); ++part) {
    const std::span<const float> in = part->second.floats();
    if (part == parts.begin()) {
      std::ranges::copy(in, out);
    } else {
      for (size_t i = 0; i < in.size(); ++i) out[i] += in[i];
    }
  }
  const std::lock_guard lock(mutex_);
  if (--StateFor(step).missing_counts[bucket_of_[shard.value()]] == 0) changed_.notify_all();
}

void GradientExchange::SetWhole(Version version) {
  const std::lock_guard lock(mutex_);
  whole_ = version;
  changed_.notify_all();
}

void GradientExchange::SetHash(Version version, uint64_t hash) {
  const std::lock_guard lock(mutex_);
  hashes_[version] = hash;
  changed_.notify_all();
}

bool GradientExchange::IsCompared(Version version) const {
  return plan_.IsEvaluationDue(version) && version > VersionReadBy(first_);
}

// ---- the exchange's thread ----------------------------------------------------------------------

void GradientExchange::Run() {
  SetFloatEnvironment();
  Status status = Work();
  const std::lock_guard lock(mutex_);
  if (!status.ok() && !is_stopping_) port_.OnFailed(std::move(status));
  has_ended_ = true;
  changed_.notify_all();
}

Status GradientExchange::Work() {
  Result<std::unique_ptr<AllreduceGroup>> connected = port_.Connect();
  if (!connected.ok()) return connected.status();
  AllreduceGroup& group = **connected;
  {
    const std::lock_guard lock(mutex_);
    if (is_stopping_) return Interrupted("stopped");
    group_ = *std::move(connected);
  }
  if (Status s = port_.Prepare(group); !s.ok()) return s;
  for (Step step = first_; step.value() < plan_.steps.step_count(); step = NextStep(step)) {
    timeline_.Begin(step);
    if (Status s = Compare(group, VersionReadBy(step)); !s.ok()) return s;
    if (Status s = SumStep(group, step); !s.ok()) return s;
  }
  return Compare(group, plan_.steps.final_version());
}

Status GradientExchange::Compare(AllreduceGroup& group, Version version) {
  if (!IsCompared(version)) return Status();
  uint64_t ours = 0;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_stopping_ || hashes_.contains(version); });
    if (is_stopping_) return Interrupted("stopped");
    ours = hashes_.extract(version).mapped();
  }
  timeline_.DidAwaitVersion();
  uint64_t theirs = ours;
  if (Status s = group.Broadcast(std::as_writable_bytes(std::span(&theirs, 1))); !s.ok()) return s;
  if (theirs != ours) {
    return Internal("allreduce: rank " + std::to_string(rank_) +
                    " and rank 0 hold different weights of "
                    "version " +
                    std::to_string(version.value()) +
                    ": one of these machines computes wrongly, or they run different builds");
  }
  port_.OnAgreed(version);
  timeline_.DidCompare();
  return Status();
}

Status GradientExchange::SumStep(AllreduceGroup& group, Step step) {
  if (!AwaitFlat(step)) return Interrupted("stopped");
  timeline_.DidAwaitVersion();
  for (size_t b = 0; b < buckets_.size(); ++b) {
    if (!AwaitBucket(step, b)) return Interrupted("stopped");
    timeline_.DidAwaitGradients(b);
    const ShardRange& floats = buckets_[b].floats;
    Status s = group.Sum(std::span(FlatFor(step) + floats.first, floats.size()));
    if (!s.ok()) return s;
    timeline_.DidSum(b);
    port_.OnSums({step, buckets_[b].shards, flats_[step.value() % flats_.size()]});
    timeline_.DidHandOver(b);
  }
  return Status();
}

// Until the sums of two steps ago are not used any more. A rank that computes has waited for that
// by its forward; a rank without a share of the step has not. False when stopping.
bool GradientExchange::AwaitFlat(Step step) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_stopping_ || whole_.value() + 1 >= step.value(); });
  return !is_stopping_;
}

// False when stopping.
bool GradientExchange::AwaitBucket(Step step, size_t bucket) {
  std::unique_lock lock(mutex_);
  StepState& state = StateFor(step);
  changed_.wait(lock, [&] { return is_stopping_ || state.missing_counts[bucket] == 0; });
  return !is_stopping_;
}

}  // namespace pando
