#include "worker/parameter_store.h"

#include <algorithm>
#include <chrono>

#include "common/check.h"

namespace pando {

ParameterStore::ParameterStore(const ShardPlan& shards, uint64_t versions_kept)
    : shards_(shards), versions_kept_(versions_kept), pool_(shards.ranges().back().last) {}

void ParameterStore::Put(ShardId shard, Version version, const Blob& payload) {
  const ShardRange& range = shards_.range(shard);
  PANDO_CHECK(payload.floats().size() == range.size());
  SharedBuffer values;
  {
    std::lock_guard lock(mutex_);
    if (IsTooOld(version)) return;
    Held& held = FindOrMake(version);
    if (held.has_shard[shard.value()]) return;
    values = held.values;
  }
  std::span<const float> floats = payload.floats();  // copied unlocked: nobody reads it yet
  std::copy(floats.begin(), floats.end(), values->data() + range.first);
  Arrived(shard, version);
}

SharedBuffer ParameterStore::Writable(Version version) {
  std::lock_guard lock(mutex_);
  PANDO_CHECK(!IsTooOld(version));
  return FindOrMake(version).values;
}

void ParameterStore::Arrived(ShardId shard, Version version) {
  {
    std::lock_guard lock(mutex_);
    MarkArrived(shard, version);
  }
  changed_.notify_all();
}

void ParameterStore::MarkArrived(ShardId shard, Version version) {
  Held& held = FindOrMake(version);
  PANDO_CHECK(!held.has_shard[shard.value()]);
  held.has_shard[shard.value()] = true;
  --held.missing_count;
  newest_arrived_ = std::max(newest_arrived_, version);
  while (IsTooOld(held_.begin()->first)) held_.erase(held_.begin());
}

void ParameterStore::Clear() {
  {
    std::lock_guard lock(mutex_);
    held_.clear();
    newest_arrived_ = Version(0);
  }
  changed_.notify_all();
}

bool ParameterStore::IsWhole(Version version) const {
  std::lock_guard lock(mutex_);
  auto held = held_.find(version);
  return held != held_.end() && held->second.missing_count == 0;
}

bool ParameterStore::IsSuperseded(Version version) const {
  std::lock_guard lock(mutex_);
  return IsTooOld(version);
}

Result<std::shared_ptr<const FloatBuffer>> ParameterStore::Open(Version version) {
  std::lock_guard lock(mutex_);
  if (IsTooOld(version)) return Interrupted("the version has been superseded");
  return std::shared_ptr<const FloatBuffer>(FindOrMake(version).values);
}

Status ParameterStore::WaitFor(ShardPlan::Run shards, Version version,
                               const std::function<bool()>& interrupted) {
  std::unique_lock lock(mutex_);
  // Looked up each time: the version may have been dropped meanwhile.
  const auto is_gone = [&] { return IsTooOld(version) || !held_.contains(version); };
  const auto is_missing = [&] {
    const std::vector<bool>& has_shard = held_.at(version).has_shard;
    return std::find(has_shard.begin() + shards.first, has_shard.begin() + shards.last, false) !=
           has_shard.begin() + shards.last;
  };
  if (!is_gone() && !is_missing()) return {};
  const auto start = std::chrono::steady_clock::now();
  changed_.wait(lock, [&] { return is_gone() || !is_missing() || interrupted(); });
  const auto waited = std::chrono::steady_clock::now() - start;
  waited_us_ += std::chrono::duration_cast<std::chrono::microseconds>(waited).count();
  if (!is_gone() && !is_missing()) return {};
  return Interrupted("the wait for parameters was called off");
}

void ParameterStore::Wake() {
  { std::lock_guard lock(mutex_); }  // so that no waiter stands between its question and its sleep
  changed_.notify_all();
}

uint64_t ParameterStore::waited_us() const {
  std::lock_guard lock(mutex_);
  return waited_us_;
}

ParameterStore::Held& ParameterStore::FindOrMake(Version version) {
  Held& held = held_[version];
  if (held.values == nullptr) {
    held.values = pool_.Take();
    held.has_shard.resize(shards_.shard_count());
    held.missing_count = shards_.shard_count();
  }
  return held;
}

bool ParameterStore::IsTooOld(Version version) const {
  return version.value() + versions_kept_ <= newest_arrived_.value();
}

}  // namespace pando
