#include "worker/allreduce/gradient_exchange.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/system.h"

namespace pando {

GradientExchange::GradientExchange(const JobPlan& plan, uint32_t rank, ExchangePort& port,
                                   Device device, Timeline* timeline)
    : plan_(plan),
      rank_(rank),
      parts_{.device = device},
      port_(port),
      buckets_(PlanBuckets(plan.shards)),
      track_(timeline, "exchange"),
      names_{.sums = std::vector<TimelineNameId>(buckets_.size())},
      bucket_of_(plan.shards.shard_count()) {
  if (timeline != nullptr) NameSpans(*timeline);
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

void GradientExchange::NameSpans(Timeline& timeline) {
  names_.await_version = timeline.Name({"wait for the version", "wait", ""});
  names_.compare = timeline.Name({"compare weights", "allreduce", ""});
  names_.await_gradients = timeline.Name({"wait for gradients", "wait", "bucket"});
  names_.hand_over = timeline.Name({"hand sums over", "push", "bucket"});
  for (size_t b = 0; b < buckets_.size(); ++b)
    names_.sums[b] =
        timeline.Name({fmt::format("allreduce of bucket {}", b), "allreduce", "bytes"});
}

void GradientExchange::Begin(Step first, std::function<size_t(Step)> node_count) {
  PANDO_CHECK(!thread_.joinable());
  first_ = first;
  node_count_ = std::move(node_count);
  has_ended_ = false;
  whole_ = VersionUpdatedBy(first);
  thread_ = std::thread([this] { Run(); });
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
  const auto count_one = [&] {
    if (--StateFor(step).missing_counts[bucket_of_[shard.value()]] == 0) changed_.notify_all();
  };
  Parts parts;
  {
    const std::lock_guard lock(mutex_);
    StepState& state = StateFor(step);
    Parts& held = state.parts[shard.value()];
    held.emplace(node, sum);
    if (held.size() < state.node_count) return;
    if (parts_.device.kind == DeviceKind::kCuda) return count_one();  // the thread takes them
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
  count_one();
}

// ---- the exchange's thread ----------------------------------------------------------------------

void GradientExchange::Run() {
  SetFloatEnvironment();
  if (parts_.device.kind == DeviceKind::kCuda) {
    UseOnThisThread(parts_.device);
    parts_.downloads.emplace(parts_.device);
  }
  Status status = Work();
  Change([&] {
    if (!status.ok() && !is_stopping_) port_.OnFailed(std::move(status));
    has_ended_ = true;
  });
}

Status GradientExchange::Work() {
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<AllreduceGroup> connected, port_.Connect());
  AllreduceGroup& group = *connected;
  {
    const std::lock_guard lock(mutex_);
    if (is_stopping_) return Interrupted("stopped");
    group_ = std::move(connected);
  }
  PANDO_RETURN_IF_ERROR(port_.Prepare(group));
  for (Step step = first_; step.value() < plan_.steps.step_count(); step = NextStep(step)) {
    track_.Begin(step);
    PANDO_RETURN_IF_ERROR(Compare(group, VersionUpdatedBy(step)));
    PANDO_RETURN_IF_ERROR(SumStep(group, step));
  }
  return Compare(group, plan_.steps.final_version());
}

Status GradientExchange::Compare(AllreduceGroup& group, Version version) {
  if (!IsCompared(version)) return Status();
  uint64_t ours = 0;
  const auto take_ours = [&] {
    const auto hash = hashes_.extract(version);
    if (!hash.empty()) ours = hash.mapped();
    return !hash.empty();
  };
  if (!Await(take_ours)) return Interrupted("stopped");
  track_.Did(names_.await_version, 0);
  uint64_t theirs = ours;
  PANDO_RETURN_IF_ERROR(group.Broadcast(std::as_writable_bytes(std::span(&theirs, 1))));
  if (theirs != ours) {
    return Internal(fmt::format(
        "allreduce: rank {} and rank 0 hold different weights of version {}: one of these machines "
        "computes wrongly, or they run different builds",
        rank_, version.value()));
  }
  port_.OnAgreed(version);
  track_.Did(names_.compare, 0);
  return Status();
}

Status GradientExchange::SumStep(AllreduceGroup& group, Step step) {
  // Waits until the sums of two steps ago are not used any more. A rank that computes has waited
  // for that in its forward; a rank without a share of the step has not.
  if (!Await([&] { return whole_.value() + 1 >= step.value(); })) return Interrupted("stopped");
  track_.Did(names_.await_version, 0);
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const auto is_full = [&] { return StateFor(step).missing_counts[b] == 0; };
    if (!Await(is_full)) return Interrupted("stopped");
    track_.Did(names_.await_gradients, static_cast<uint32_t>(b));
    const ShardRange& floats = buckets_[b].floats;
    PANDO_RETURN_IF_ERROR(SumBucket(group, step, buckets_[b]));
    const size_t bytes = floats.size() * sizeof(float);
    track_.Did(names_.sums[b], static_cast<uint32_t>(std::min<size_t>(bytes, UINT32_MAX)));
    port_.OnSums({step, buckets_[b].shards, flats_[step.value() % flats_.size()]});
    track_.Did(names_.hand_over, static_cast<uint32_t>(b));
  }
  return Status();
}

// A rank without a share of the step has no parts, and zeros on the host.
Status GradientExchange::SumBucket(AllreduceGroup& group, Step step, const Bucket& bucket) {
  const std::span sums(FlatFor(step) + bucket.floats.first, bucket.floats.size());
  if (parts_.device.kind == DeviceKind::kCpu) return group.Sum(sums);
  std::vector<Parts> parts;
  {
    const std::lock_guard lock(mutex_);
    for (uint32_t s = bucket.shards.first; s < bucket.shards.last; ++s)
      parts.push_back(std::exchange(StateFor(step).parts[s], {}));
  }
  const bool is_whole = std::ranges::all_of(parts, [](const Parts& p) { return p.size() == 1; });
  if (!is_whole || !group.sums_on_gpus()) {
    BringToHost(parts, sums.data());
    return group.Sum(sums);
  }
  std::vector<std::span<const float>> pieces;
  for (const Parts& part : parts) pieces.push_back(part.begin()->second.floats());
  return group.SumOnGpus(pieces, sums);
}

// `parts`: the contributions to adjacent shards, whose sums are adjacent at `to`.
void GradientExchange::BringToHost(std::span<const Parts> parts, float* to) {
  FloatBuffer& more = parts_.arrivals;
  for (const Parts& of_shard : parts) {
    for (auto part = of_shard.begin(); part != of_shard.end(); ++part) {
      const std::span<const float> in = part->second.floats();
      if (part != of_shard.begin() && more.size() < in.size())
        more = PinnedFloats(parts_.device, in.size());
      float* arrival = part == of_shard.begin() ? to : more.data();
      parts_.downloads->ToHost(in.data(), std::as_writable_bytes(std::span(arrival, in.size())));
      if (arrival == to) continue;
      parts_.downloads->Await(parts_.downloads->Mark());
      for (size_t i = 0; i < in.size(); ++i) to[i] += more.data()[i];
    }
    if (!of_shard.empty()) to += of_shard.begin()->second.floats().size();
  }
  parts_.downloads->Await(parts_.downloads->Mark());
}

std::vector<Bucket> PlanBuckets(const ShardPlan& shards) {
  std::vector<Bucket> buckets;
  uint32_t last = shards.shard_count();
  for (uint32_t s = shards.shard_count(); s-- > 0;) {
    const ShardRange floats{shards.range(ShardId(s)).first, shards.range(ShardId(last - 1)).last};
    const size_t wanted = buckets.empty() ? kFirstBucketBytes : kBucketBytes;
    if (floats.size() * sizeof(float) < wanted && s > 0) continue;
    buckets.push_back({{s, last}, floats});
    last = s;
  }
  return buckets;
}

}  // namespace pando
