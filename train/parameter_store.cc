#include "train/parameter_store.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/check.h"

namespace pando {

void HeldBytes::Add(uint64_t bytes) {
  const uint64_t now = now_ += bytes;
  uint64_t peak = peak_;
  while (peak < now && !peak_.compare_exchange_weak(peak, now)) {
  }
}

struct ParameterStore::VersionBuffer {
  uint64_t serial = 0;
  SharedBuffer whole;                  // if all is resident; null: nothing has been copied
  std::vector<Blob> in_place;          // by shard: a payload that is kept itself; else empty
  std::unique_ptr<PagedFloats> pages;  // with layer residency
  std::vector<bool> has_shard;
  uint32_t missing_count = 0;
  // With layer residency, by shard: how many ask for it, a writer included, and whether it has
  // memory.
  std::vector<uint32_t> asker_counts;
  std::vector<bool> is_resident;

  float* data() { return whole != nullptr ? whole->data() : pages->data(); }
};

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
  const ShardRange place = Place(shard);
  const uint32_t s = shard.value();
  const ShardCodec* codec = options_.keeps_encoded ? nullptr : Codec(shard);
  PANDO_CHECK(codec != nullptr || payload.floats().size() == place.size());
  std::shared_ptr<VersionBuffer> buffer;
  {
    std::lock_guard lock(mutex_);
    if (IsTooOld(version)) return;
    buffer = FindOrMake(version);
    if (buffer->has_shard[s]) return;
    if (options_.is_read_in_place && codec == nullptr && options_.is_read_in_place(payload)) {
      buffer->in_place[s] = payload;
      return MarkArrived(*buffer, shard, version);
    }
    if (!is_layered()) FindOrMakeWhole(*buffer);
    if (is_layered()) {
      if (buffer->asker_counts[s] == 0) return;
      ++buffer->asker_counts[s];  // until it has arrived, even if its readers release it
      buffer->is_resident[s] = true;
      held_bytes_.Add(ShardBytes(s));
    }
  }
  const std::span<float> to(buffer->data() + place.first, place.size());
  if (codec != nullptr) {  // unlocked: no thread reads it yet
    codec->Decode(payload.bytes(), to);
  } else {
    std::ranges::copy(payload.floats(), to.begin());
  }
  std::lock_guard lock(mutex_);
  MarkArrived(*buffer, shard, version);
  if (is_layered()) Release(*buffer, {s, s + 1});
}

SharedBuffer ParameterStore::Writable(Version version) {
  std::lock_guard lock(mutex_);
  PANDO_CHECK(!IsTooOld(version) && !is_layered());
  return FindOrMakeWhole(*FindOrMake(version));
}

void ParameterStore::Arrived(ShardId shard, Version version) {
  std::lock_guard lock(mutex_);
  MarkArrived(*FindOrMake(version), shard, version);
}

// Wakes threads only when a wait is over. If each shard woke them, they would slow the writer down.
void ParameterStore::MarkArrived(VersionBuffer& buffer, ShardId shard, Version version) {
  PANDO_CHECK(!buffer.has_shard[shard.value()]);
  buffer.has_shard[shard.value()] = true;
  --buffer.missing_count;
  newest_arrived_ = std::max(newest_arrived_, version);
  DropTooOld();
  bool ends_wait = false;
  for (Waiter* waiter : waiters_) {
    const Run& shards = waiter->shards;
    if (waiter->buffer == &buffer && shard.value() >= shards.first && shard.value() < shards.last)
      ends_wait |= --waiter->missing_count == 0;
    ends_wait |= IsTooOld(waiter->version);
  }
  if (ends_wait) changed_.notify_all();
}

void ParameterStore::Clear() {
  std::lock_guard lock(mutex_);
  buffers_.clear();
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
  auto buffer = buffers_.find(version);
  return buffer != buffers_.end() && buffer->second->missing_count == 0;
}

bool ParameterStore::IsSuperseded(Version version) const {
  std::lock_guard lock(mutex_);
  return IsTooOld(version);
}

const std::shared_ptr<ParameterStore::VersionBuffer>& ParameterStore::FindOrMake(Version version) {
  std::shared_ptr<VersionBuffer>& buffer = buffers_[version];
  if (buffer != nullptr) return buffer;
  buffer = std::make_shared<VersionBuffer>();
  buffer->serial = ++last_serial_;
  buffer->has_shard.resize(shards_.shard_count());
  buffer->missing_count = shards_.shard_count();
  if (is_layered()) {
    buffer->pages = std::make_unique<PagedFloats>(shards_.ranges().back().last);
    buffer->asker_counts.resize(shards_.shard_count());
    buffer->is_resident.resize(shards_.shard_count());
  } else if (options_.is_read_in_place) {
    buffer->in_place.resize(shards_.shard_count());
  } else {
    FindOrMakeWhole(*buffer);
  }
  return buffer;
}

ShardRange ParameterStore::Place(ShardId shard) const {
  return options_.keeps_encoded ? options_.payloads->range(shard) : shards_.range(shard);
}

const SharedBuffer& ParameterStore::FindOrMakeWhole(VersionBuffer& buffer) {
  if (buffer.whole != nullptr) return buffer.whole;
  const size_t made_before = pool_.made_count();
  buffer.whole = pool_.Take();
  held_bytes_.Add((pool_.made_count() - made_before) * buffer.whole->size() * sizeof(float));
  return buffer.whole;
}

bool ParameterStore::IsTooOld(Version version) const {
  return version < oldest_ || version.value() + options_.versions_kept <= newest_arrived_.value();
}

// Another one may have its number by now (P21).
bool ParameterStore::IsGone(const std::shared_ptr<VersionBuffer>& buffer, Version version) const {
  const auto at = buffers_.find(version);
  return IsTooOld(version) || at == buffers_.end() || at->second != buffer;
}

void ParameterStore::DropTooOld() {
  while (!buffers_.empty() && IsTooOld(buffers_.begin()->first)) buffers_.erase(buffers_.begin());
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
  PANDO_CHECK(!is_layered());
  if (IsTooOld(version)) return Interrupted("the version has been superseded");
  const std::vector<Blob>& in_place = FindOrMake(version)->in_place;
  PANDO_CHECK(std::ranges::all_of(in_place, [](const Blob& b) { return b.size_bytes() == 0; }));
  return std::shared_ptr<const FloatBuffer>(FindOrMakeWhole(*FindOrMake(version)));
}

ParameterStore::Hold::~Hold() {
  if (buffer_ == nullptr || !store_->is_layered()) return;
  std::lock_guard lock(store_->mutex_);
  store_->Release(*buffer_, now_);
  store_->Release(*buffer_, next_);
}

uint64_t ParameterStore::Hold::serial() const { return buffer_->serial; }

const float* ParameterStore::Hold::values() const { return buffer_->data(); }

// Shards that have arrived do not change any more, so no lock is needed.
const float* ParameterStore::Hold::kept_shard(ShardId shard) const {
  const std::vector<Blob>& in_place = buffer_->in_place;
  if (!in_place.empty() && in_place[shard.value()].size_bytes() > 0)
    return in_place[shard.value()].floats().data();
  return buffer_->data() + store_->Place(shard).first;
}

std::vector<float> ParameterStore::Hold::ReadShard(ShardId shard) const {
  std::vector<float> floats(store_->shards_.range(shard).size());
  const std::span kept(kept_shard(shard), store_->Place(shard).size());
  if (store_->options_.keeps_encoded) {
    store_->Codec(shard)->Decode(std::as_bytes(kept), floats);
  } else {
    std::ranges::copy(kept, floats.begin());
  }
  return floats;
}

Status ParameterStore::Hold::Advance(Run now, Run next, const std::function<bool()>& interrupted,
                                     const Fetch& fetch) {
  std::unique_lock lock(store_->mutex_);
  if (store_->is_layered() && !store_->IsGone(buffer_, version_)) {
    std::vector<ShardId> wanted = store_->Ask(*buffer_, now);
    std::ranges::copy(store_->Ask(*buffer_, next), std::back_inserter(wanted));
    store_->Release(*buffer_, std::exchange(now_, now));
    store_->Release(*buffer_, std::exchange(next_, next));
    if (!wanted.empty()) {
      lock.unlock();
      fetch(wanted);
      lock.lock();
    }
  }
  return store_->Await(lock, buffer_, version_, now, interrupted);
}

// Those of them that no thread had asked for before.
std::vector<ShardId> ParameterStore::Ask(VersionBuffer& buffer, Run shards) {
  std::vector<ShardId> wanted;
  for (uint32_t s = shards.first; s < shards.last; ++s) {
    if (buffer.asker_counts[s]++ == 0) wanted.emplace_back(s);
  }
  return wanted;
}

void ParameterStore::Release(VersionBuffer& buffer, Run shards) {
  for (uint32_t s = shards.first; s < shards.last; ++s) {
    if (--buffer.asker_counts[s] == 0 && buffer.is_resident[s]) Drop(buffer, s);
  }
}

// Pages that a resident neighbour shares stay, until it goes.
void ParameterStore::Drop(VersionBuffer& buffer, uint32_t shard) {
  buffer.is_resident[shard] = buffer.has_shard[shard] = false;
  ++buffer.missing_count;
  held_bytes_.Remove(ShardBytes(shard));
  const size_t page = PagedFloats::page_floats();
  const auto is_resident = [&](uint32_t s, size_t first, size_t last) {
    const ShardRange& range = shards_.range(ShardId(s));
    return buffer.is_resident[s] && range.first < last && first < range.last;
  };
  const ShardRange& range = shards_.range(ShardId(shard));
  size_t first = range.first / page * page;
  size_t last = (range.last + page - 1) / page * page;
  for (uint32_t s = shard; s-- > 0 && shards_.range(ShardId(s)).last > first;) {
    if (is_resident(s, first, first + page)) first += page;
  }
  for (uint32_t s = shard + 1; s < shards_.shard_count(); ++s) {
    if (first >= last || shards_.range(ShardId(s)).first >= last) break;
    if (is_resident(s, last - page, last)) last -= page;
  }
  buffer.pages->GiveBack(first, last);
}

Status ParameterStore::Await(std::unique_lock<std::mutex>& lock,
                             const std::shared_ptr<VersionBuffer>& buffer, Version version,
                             Run shards, const std::function<bool()>& interrupted) {
  const auto is_gone = [&] { return IsGone(buffer, version); };
  const auto begin = buffer->has_shard.begin();
  Waiter self{.buffer = buffer.get(),
              .version = version,
              .shards = shards,
              .missing_count = static_cast<size_t>(
                  std::count(begin + shards.first, begin + shards.last, false))};
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
