#include "net/shm/shared_pool.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/core.h>

#include "common/check.h"
#include "net/shm/shared_reader.h"
#include "proto/codec.h"

namespace pando {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Status NoSegment(const char* what) {
  return Unavailable(fmt::format("no shared memory: {}: {}", what, std::strerror(errno)));
}

// A slot begins at a page, so that no two slots share a page, and has room for a buffer's padding.
constexpr size_t kPageBytes = 4096;

size_t CapacityFor(size_t float_count) {
  return (float_count * sizeof(float) / kPageBytes + 1) * kPageBytes;
}

}  // namespace

// ---- segments -----------------------------------------------------------------------------------

Result<SharedSegment> SharedSegment::Create(size_t data_bytes) {
  const size_t size_bytes = kSharedWordsBytes + data_bytes;
  UniqueFd fd(memfd_create("pando", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.is_open()) return NoSegment("memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(size_bytes)) != 0) return NoSegment("ftruncate");
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return NoSegment("F_ADD_SEALS");
  Mapping base = MapWhole(fd.get(), size_bytes);
  if (base == nullptr) return NoSegment("mmap");
  return SharedSegment(std::move(fd), std::move(base));
}

Result<SharedSegment> SharedSegment::Map(UniqueFd fd, uint64_t size_bytes) {
  struct stat facts {};
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return Corrupt("a segment that is not sealed");
  struct statfs system {};
  if (fstat(fd.get(), &facts) != 0 || fstatfs(fd.get(), &system) != 0) return NoSegment("fstat");
  // Huge pages are refused, because reading them can fault.
  if (system.f_type != TMPFS_MAGIC) return Corrupt("a segment that is not ordinary memory");
  const bool is_size = size_bytes > kSharedWordsBytes && size_bytes <= kSharedSegmentBytesMax &&
                       static_cast<uint64_t>(facts.st_size) == size_bytes;
  if (!is_size) {
    return Corrupt(fmt::format("a segment of {} bytes instead of {}", facts.st_size, size_bytes));
  }
  Mapping base = MapWhole(fd.get(), size_bytes);
  if (base == nullptr) return NoSegment("mmap");
  if (mprotect(base.get() + kSharedWordsBytes, size_bytes - kSharedWordsBytes, PROT_READ) != 0)
    return NoSegment("mprotect");
  return SharedSegment(UniqueFd(), std::move(base));
}

// Readers write words, so the mapping is writable.
SharedSegment::Mapping SharedSegment::MapWhole(int fd, size_t size_bytes) {
  void* base = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  // With MADV_DONTFORK, a child that a program forks (embed/) keeps no segment alive.
  if (base != MAP_FAILED) madvise(base, size_bytes, MADV_DONTFORK);
  return Mapping(base == MAP_FAILED ? nullptr : static_cast<std::byte*>(base), {size_bytes});
}

void SharedSegment::Unmap::operator()(std::byte* base) const { munmap(base, size_bytes); }

// ---- the pool -----------------------------------------------------------------------------------

Result<std::shared_ptr<SharedPool>> SharedPool::Create(Sizes sizes) {
  PANDO_ASSIGN_OR_RETURN(SharedSegment first, SharedSegment::Create(sizes.segment_bytes));
  std::shared_ptr<SharedPool> pool(new SharedPool(sizes));
  pool->segments_.reserve(kSegmentsMax);
  pool->segments_.push_back({std::move(first)});
  return pool;
}

BufferSource SharedPool::source() {
  return {.make = [pool = shared_from_this()](size_t count) { return pool->Make(count); },
          .renew = [pool = shared_from_this()](const FloatBuffer& b) { return pool->Renew(b); }};
}

// ---- the pool's slots ---------------------------------------------------------------------------

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
    // The gaps between tensors are sent but never written, so they must be zero.
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

// Returns null if no segment has room and no other one can be created.
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

// Returns whether the buffer may be written again: no reader holds it, or it is heap memory.
bool SharedPool::Renew(const FloatBuffer& buffer) {
  std::lock_guard lock(mutex_);
  const auto slot = slots_.find(reinterpret_cast<const std::byte*>(buffer.data()));
  return slot == slots_.end() || RenewSlot(slot->second);
}

// Withdraws references that a message carries and no reader has taken yet. Those messages count as
// lost: if this process still needed them, it would still hold the buffer.
bool SharedPool::RenewSlot(Slot& slot) {
  const SharedSegment& memory = segments_[slot.segment].memory;
  for (size_t reader = 0; reader < kSharedReadersMax; ++reader) {
    if (!is_reader_[reader]) continue;
    const auto word = memory.word(slot.index, reader);
    uint64_t seen = word.load(std::memory_order_acquire);
    while (seen != kNothingOffered) {
      if (IsHeldWord(seen)) return false;
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

// ---- the pool's readers -------------------------------------------------------------------------

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

// ---- reading ------------------------------------------------------------------------------------

// Mapping is one mapped segment. Two blobs of one slot share its word; the last one gives it back.
class SharedReader::Mapping {
 public:
  Mapping(SharedSegment memory, uint32_t reader, std::shared_ptr<const void> while_reading,
          OnMapped on_mapped)
      : memory_(std::move(memory)),
        reader_(reader),
        while_reading_(std::move(while_reading)),
        on_mapped_(std::move(on_mapped)) {}

  bool Has(const SharedReference& r) const {
    return r.slot < kSharedSlotsMax && r.offset_bytes >= kSharedWordsBytes &&
           r.offset_bytes % kWordBytes == 0 &&  // frames are aligned; encoded shards are not
           r.offset_bytes <= memory_.size_bytes() &&
           r.size_bytes <= memory_.size_bytes() - r.offset_bytes;
  }
  std::span<const std::byte> NamedBytes(const SharedReference& r) const {
    return {memory_.base() + r.offset_bytes, r.size_bytes};
  }
  // Reports whole pages, which no other slot shares. The rest of a segment may not exist yet.
  void Report(const SharedReference& r) {
    if (!on_mapped_ || r.offset_bytes % kPageBytes != 0 || reported_.contains(r.slot)) return;
    const size_t pages = (r.size_bytes + kPageBytes - 1) / kPageBytes;
    const size_t bytes = std::min(pages * kPageBytes, memory_.size_bytes() - r.offset_bytes);
    reported_[r.slot] = on_mapped_({memory_.base() + r.offset_bytes, bytes});
  }
  bool Take(uint32_t slot, uint64_t sequence) {
    std::lock_guard lock(mutex_);
    const auto held = holds_.find(slot);
    if (held != holds_.end()) {
      if (held->second.sequence != sequence) return false;
      ++held->second.count;
      return true;
    }
    uint64_t offered = OfferedWord(sequence);
    const bool is_ours =
        memory_.word(slot, reader_)
            .compare_exchange_strong(offered, HeldWord(sequence), std::memory_order_acq_rel);
    if (is_ours) holds_.emplace(slot, Held{sequence, 1});
    return is_ours;
  }
  void GiveBack(uint32_t slot) {  // any thread
    std::lock_guard lock(mutex_);
    const auto held = holds_.find(slot);
    if (--held->second.count > 0) return;
    memory_.word(slot, reader_)
        .store(OfferedWord(held->second.sequence), std::memory_order_release);
    holds_.erase(held);
  }

 private:
  struct Held {
    uint64_t sequence;
    size_t count;
  };
  const SharedSegment memory_;
  const uint32_t reader_;
  const std::shared_ptr<const void> while_reading_;
  const OnMapped on_mapped_;
  std::map<uint32_t, std::shared_ptr<const void>> reported_;  // by slot; destroyed before memory_
  std::mutex mutex_;                                          // guards holds_
  std::map<uint32_t, Held> holds_;
};

Status SharedReader::Map(uint32_t segment, UniqueFd fd, uint64_t size_bytes, uint32_t reader) {
  if (segment != mappings_.size() || segment >= SharedPool::kSegmentsMax) {
    return Corrupt(fmt::format("segment {} follows {}", segment, mappings_.size()));
  }
  if (reader >= kSharedReadersMax) return Corrupt(fmt::format("reader {} of a segment", reader));
  PANDO_ASSIGN_OR_RETURN(SharedSegment memory, SharedSegment::Map(std::move(fd), size_bytes));
  mappings_.push_back(
      std::make_shared<Mapping>(std::move(memory), reader, while_reading_, on_mapped_));
  return Status();
}

Result<Blob> SharedReader::Open(const SharedReference& reference) {
  // A link that existed before this one named the segment.
  if (reference.segment >= mappings_.size()) return Unavailable("overtaken");
  if (!mappings_[reference.segment]->Has(reference)) {
    return Corrupt(fmt::format("{} bytes at {} of segment {}, which has no such bytes",
                               reference.size_bytes, reference.offset_bytes, reference.segment));
  }
  std::shared_ptr<Mapping> mapping = mappings_[reference.segment];
  if (!mapping->Take(reference.slot, reference.sequence)) return Unavailable("overtaken");
  mapping->Report(reference);
  const std::span<const std::byte> bytes = mapping->NamedBytes(reference);
  auto hold = std::shared_ptr<const void>(
      bytes.data(), [mapping, slot = reference.slot](const void*) { mapping->GiveBack(slot); });
  return Blob(bytes, std::move(hold));
}

}  // namespace pando
