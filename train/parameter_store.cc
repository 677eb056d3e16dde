#include "train/parameter_store.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/check.h"

namespace pando {

namespace {

size_t FlatSize(const ShardPlan& shards, const ParameterStore::Options& options) {
  return options.keeps_encoded ? options.payloads->float_count() : shards.ranges().back().last;
}

}  // namespace

ParameterStore::ParameterStore(const ShardPlan& shards, const Options& options,
                               HeldBytes& held_bytes)
    : shards_(shards),
      options_(options),
      held_bytes_(held_bytes),
      pool_(FlatSize(shards, options), options.make) {}

// ---- writer -------------------------------------------------------------------------------------

void ParameterStore::Put(ShardId shard, Version version, const Blob& payload) {
  std::shared_ptr<KeptVersion> kept;
  std::span<float> memory;
  {
    std::lock_guard lock(mutex_);
    if (IsTooOld(version)) return;
    kept = FindOrMake(version);
    if (kept->HasShard(shard.value())) return;
    if (kept->KeepPayload(shard, payload)) return MarkArrived(*kept, shard, version);
    memory = kept->MemoryFor(shard);
    if (memory.empty()) return;
  }
  kept->Write(shard, payload, memory);
  std::lock_guard lock(mutex_);
  MarkArrived(*kept, shard, version);
  kept->EndWrite(shard);
}

SharedBuffer ParameterStore::Writable(Version version) {
  std::lock_guard lock(mutex_);
  PANDO_CHECK(!IsTooOld(version));
  return FindOrMake(version)->WholeVector();
}

void ParameterStore::Arrived(ShardId shard, Version version) {
  std::lock_guard lock(mutex_);
  MarkArrived(*FindOrMake(version), shard, version);
}

// Wakes threads only when a wait is over. If each shard woke them, they would slow the writer down.
void ParameterStore::MarkArrived(KeptVersion& kept, ShardId shard, Version version) {
  kept.MarkArrived(shard);
  newest_arrived_ = std::max(newest_arrived_, version);
  DropTooOld();
  bool ends_wait = false;
  for (Waiter* waiter : waiters_) {
    const Run& shards = waiter->shards;
    if (waiter->kept == &kept && shard.value() >= shards.first && shard.value() < shards.last)
      ends_wait |= --waiter->missing_count == 0;
    ends_wait |= IsTooOld(waiter->version);
  }
  if (ends_wait) changed_.notify_all();
}

void ParameterStore::Clear() {
  std::lock_guard lock(mutex_);
  versions_.clear();
  newest_arrived_ = oldest_ = Version(0);
  changed_.notify_all();
}

void ParameterStore::Supersede(Version version) {
  std::lock_guard lock(mutex_);
  oldest_ = std::max(oldest_, Version(version.value() + 1));
  DropTooOld();
  changed_.notify_all();
}

bool ParameterStore::IsWhole(Version version) const {
  std::lock_guard lock(mutex_);
  const auto kept = versions_.find(version);
  return kept != versions_.end() && kept->second->is_whole();
}

bool ParameterStore::IsSuperseded(Version version) const {
  std::lock_guard lock(mutex_);
  return IsTooOld(version);
}

const std::shared_ptr<KeptVersion>& ParameterStore::FindOrMake(Version version) {
  std::shared_ptr<KeptVersion>& kept = versions_[version];
  if (kept == nullptr)
    kept = MakeKeptVersion({shards_, options_.payloads, pool_, held_bytes_}, ++last_serial_,
                           {is_layered(), options_.keeps_encoded, options_.is_read_in_place});
  return kept;
}

bool ParameterStore::IsTooOld(Version version) const {
  return version < oldest_ || version.value() + options_.versions_kept <= newest_arrived_.value();
}

// Another one may have its number by now (P21).
bool ParameterStore::IsGone(const std::shared_ptr<KeptVersion>& kept, Version version) const {
  const auto at = versions_.find(version);
  return IsTooOld(version) || at == versions_.end() || at->second != kept;
}

void ParameterStore::DropTooOld() {
  while (!versions_.empty() && IsTooOld(versions_.begin()->first))
    versions_.erase(versions_.begin());
}

// ---- readers ------------------------------------------------------------------------------------

Result<ParameterStore::Hold> ParameterStore::HoldVersion(Version version,
                                                         const std::function<bool()>& is_dropped) {
  std::lock_guard lock(mutex_);
  if (is_dropped && is_dropped()) return Interrupted("the work was abandoned");
  if (IsTooOld(version)) return Interrupted("the version has been superseded");
  return Hold(*this, version, FindOrMake(version));
}

Result<std::shared_ptr<const FloatBuffer>> ParameterStore::Open(Version version) {
  std::lock_guard lock(mutex_);
  if (IsTooOld(version)) return Interrupted("the version has been superseded");
  return std::shared_ptr<const FloatBuffer>(FindOrMake(version)->WholeVector());
}

ParameterStore::Hold::~Hold() {
  if (kept_ == nullptr || !store_->is_layered()) return;
  std::lock_guard lock(store_->mutex_);
  kept_->Release(now_);
  kept_->Release(next_);
}

uint64_t ParameterStore::Hold::serial() const { return kept_->serial(); }

// Shards that have arrived do not change any more, so these functions need no lock.
const float* ParameterStore::Hold::values() const { return kept_->values(); }

const float* ParameterStore::Hold::kept_shard(ShardId shard) const {
  return kept_->KeptShard(shard).data();
}

std::vector<float> ParameterStore::Hold::ReadShard(ShardId shard) const {
  return kept_->ReadShard(shard);
}

Status ParameterStore::Hold::Advance(Run now, Run next, const std::function<bool()>& interrupted,
                                     const Fetch& fetch) {
  std::unique_lock lock(store_->mutex_);
  if (!store_->IsGone(kept_, version_)) {
    std::vector<ShardId> wanted = kept_->Ask(now);
    std::ranges::copy(kept_->Ask(next), std::back_inserter(wanted));
    kept_->Release(std::exchange(now_, now));
    kept_->Release(std::exchange(next_, next));
    if (!wanted.empty()) {
      lock.unlock();
      fetch(wanted);
      lock.lock();
    }
  }
  return store_->Await(lock, kept_, version_, now, interrupted);
}

Status ParameterStore::Await(std::unique_lock<std::mutex>& lock,
                             const std::shared_ptr<KeptVersion>& kept, Version version, Run shards,
                             const std::function<bool()>& interrupted) {
  const auto is_gone = [&] { return IsGone(kept, version); };
  Waiter self{.kept = kept.get(),
              .version = version,
              .shards = shards,
              .missing_count = kept->MissingCount(shards)};
  if (!is_gone() && self.missing_count == 0) return {};
  waiters_.push_back(&self);
  const auto start = std::chrono::steady_clock::now();
  while (!is_gone() && self.missing_count != 0 && !interrupted())
    changed_.wait_for(lock, kAskInterval);
  const auto waited = std::chrono::steady_clock::now() - start;
  std::erase(waiters_, &self);
  waited_us_ += std::chrono::duration_cast<std::chrono::microseconds>(waited).count();
  if (!is_gone() && self.missing_count == 0) return {};
  return Interrupted("the wait for parameters was called off");
}

void ParameterStore::Wake() {
  std::lock_guard lock(mutex_);  // so that no waiter is between its question and its sleep
  changed_.notify_all();
}

uint64_t ParameterStore::waited_us() const {
  std::lock_guard lock(mutex_);
  return waited_us_;
}

}  // namespace pando
