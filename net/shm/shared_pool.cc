#include "net/shm/shared_pool.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/mutation.h"

namespace pando {
namespace {

// A slot begins at a page, so that no two slots share a page. It has room for a buffer's padding.
constexpr size_t kPageBytes = 4096;

size_t CapacityFor(size_t float_count) {
  return (float_count * sizeof(float) / kPageBytes + 1) * kPageBytes;
}

}  // namespace

Result<std::shared_ptr<SharedPool>> SharedPool::Create(Sizes sizes) {
  Result<SharedSegment> first = SharedSegment::Create(sizes.segment_bytes);
  if (!first.ok()) return first.status();
  std::shared_ptr<SharedPool> pool(new SharedPool(sizes));
  pool->segments_.reserve(kSegmentsMax);
  pool->segments_.push_back({*std::move(first)});
  return pool;
}

BufferSource SharedPool::source() {
  return {.make = [pool = shared_from_this()](size_t count) { return pool->Make(count); },
          .renew = [pool = shared_from_this()](const FloatBuffer& b) { return pool->Renew(b); }};
}

// ---- slots --------------------------------------------------------------------------------------

FloatBuffer SharedPool::Make(size_t float_count) {
  if (float_count * sizeof(float) < sizes_.slot_bytes_min) return FloatBuffer(float_count);
  const size_t capacity_bytes = CapacityFor(float_count);
  std::byte* address = nullptr;
  {
    std::lock_guard lock(mutex_);
    const auto slot = TakeSlot(capacity_bytes);
    if (slot == slots_.end()) return FloatBuffer(float_count);
    address = SlotAddress(slot->second);
  }
  auto give_back = [pool = shared_from_this()](float* floats) {
    pool->GiveBack(reinterpret_cast<const std::byte*>(floats));
  };
  return FloatBuffer(FloatBuffer::Memory(reinterpret_cast<float*>(address), give_back),
                     float_count);
}

void SharedPool::GiveBack(const std::byte* address) {
  std::lock_guard lock(mutex_);
  free_slots_.emplace(slots_.at(address).capacity_bytes, address);
}

SharedPool::Slots::iterator SharedPool::TakeSlot(size_t capacity_bytes) {
  const auto [first, last] = free_slots_.equal_range(capacity_bytes);
  for (auto free = first; free != last; ++free) {
    const auto slot = slots_.find(free->second);
    if (!RenewSlot(slot->second)) continue;
    free_slots_.erase(free);
    // The gaps between tensors are never written, but they travel.
    std::memset(SlotAddress(slot->second), 0, capacity_bytes);
    return slot;
  }
  return AddSlot(capacity_bytes);
}

SharedPool::Slots::iterator SharedPool::AddSlot(size_t capacity_bytes) {
  Segment* segment = SegmentWithRoom(capacity_bytes);
  if (segment == nullptr) return slots_.end();
  const Slot slot{.segment = static_cast<uint32_t>(segment - segments_.data()),
                  .index = segment->slot_count,
                  .offset_bytes = segment->used_bytes,
                  .capacity_bytes = capacity_bytes};
  ++segment->slot_count;
  segment->used_bytes += capacity_bytes;
  return slots_.emplace(SlotAddress(slot), slot).first;
}

// Null: there is none, and another one cannot be made.
SharedPool::Segment* SharedPool::SegmentWithRoom(size_t capacity_bytes) {
  const auto room = std::ranges::find_if(
      segments_, [&](const Segment& s) { return s.room_bytes() >= capacity_bytes; });
  if (room != segments_.end()) return &*room;
  if (segments_.size() == kSegmentsMax) return nullptr;
  Result<SharedSegment> memory =
      SharedSegment::Create(std::max(capacity_bytes, sizes_.segment_bytes));
  if (!memory.ok()) return nullptr;
  return &segments_.emplace_back(Segment{*std::move(memory)});
}

// Returns the buffer that the pool had before, or another one that no reader holds.
bool SharedPool::Renew(const FloatBuffer& buffer) {
  std::lock_guard lock(mutex_);
  const auto slot = slots_.find(reinterpret_cast<const std::byte*>(buffer.data()));
  return slot == slots_.end() || RenewSlot(slot->second);
}

// Withdraws what a message names and no reader holds yet. Those messages count as lost: nothing
// here needs them any more, or its buffer would still be referenced.
bool SharedPool::RenewSlot(Slot& slot) {
  const SharedSegment& memory = segments_[slot.segment].memory;
  for (size_t reader = 0; reader < kSharedReadersMax; ++reader) {
    if (!is_reader_[reader]) continue;
    const auto word = memory.word(slot.index, reader);
    uint64_t seen = word.load(std::memory_order_acquire);
    while (seen != kNothingOffered) {
      if (IsHeldWord(seen) && !Mutated(Mutation::kRewriteHeldSlot)) return false;
      if (word.compare_exchange_weak(seen, kNothingOffered, std::memory_order_acq_rel)) break;
    }
  }
  ++slot.sequence;
  return true;
}

SharedPool::Slots::const_iterator SharedPool::SlotAt(const std::byte* address) const {
  auto after = slots_.upper_bound(address);
  if (after == slots_.begin()) return slots_.end();
  return std::prev(after);
}

// ---- readers ------------------------------------------------------------------------------------

std::optional<uint32_t> SharedPool::AddReader() {
  std::lock_guard lock(mutex_);
  const auto free = std::ranges::find(is_reader_, false);
  if (free == is_reader_.end()) return std::nullopt;
  *free = true;
  return static_cast<uint32_t>(free - is_reader_.begin());
}

void SharedPool::RemoveReader(uint32_t reader) {
  std::lock_guard lock(mutex_);
  PANDO_CHECK(is_reader_[reader]);
  is_reader_[reader] = false;
  for (const Segment& segment : segments_) {
    for (uint32_t slot = 0; slot < segment.slot_count; ++slot)
      segment.memory.word(slot, reader).store(kNothingOffered, std::memory_order_release);
  }
}

uint32_t SharedPool::segment_count() const {
  std::lock_guard lock(mutex_);
  return static_cast<uint32_t>(segments_.size());
}

SharedPool::Facts SharedPool::segment(uint32_t index) const {
  std::lock_guard lock(mutex_);
  const SharedSegment& memory = segments_.at(index).memory;
  return {memory.fd(), memory.size_bytes()};
}

std::optional<SharedReference> SharedPool::Find(std::span<const std::byte> bytes) const {
  std::lock_guard lock(mutex_);
  const auto found = SlotAt(bytes.data());
  if (found == slots_.end()) return std::nullopt;
  const Slot& slot = found->second;
  const auto within = static_cast<size_t>(bytes.data() - found->first);
  if (within + bytes.size() > slot.capacity_bytes) return std::nullopt;
  return SharedReference{.segment = slot.segment,
                         .slot = slot.index,
                         .sequence = slot.sequence,
                         .offset_bytes = slot.offset_bytes + within,
                         .size_bytes = bytes.size()};
}

bool SharedPool::Offer(const SharedReference& reference, uint32_t reader) {
  std::lock_guard lock(mutex_);
  const auto word = segments_[reference.segment].memory.word(reference.slot, reader);
  const uint64_t offered = OfferedWord(reference.sequence);
  uint64_t seen = kNothingOffered;
  if (word.compare_exchange_strong(seen, offered, std::memory_order_acq_rel)) return true;
  return seen == offered || seen == HeldWord(reference.sequence);
}

}  // namespace pando
