// SharedPool has buffers that peers of this host read in place (P42). It is the BufferSource of the
// pools whose blobs travel: a worker's gradients, and a lane's sums and parameters. If shared
// memory is full, it gives heap memory, which travels as bytes. Threads: any. Owns: segments, which
// grow in number but not in size. A slot that is given back is reused. The pool lives as long as
// its buffers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "common/buffer_pool.h"
#include "common/result.h"
#include "net/shm/shared_segment.h"

namespace pando {

// A SharedReference replaces a payload's bytes in a message.
struct SharedReference {
  uint32_t segment = 0;  // index among its maker's segments
  uint32_t slot = 0;     // within the segment
  uint64_t sequence = 0;
  uint64_t offset_bytes = 0;  // within the segment
  uint64_t size_bytes = 0;
};

class SharedPool : public std::enable_shared_from_this<SharedPool> {
 public:
  static constexpr uint32_t kSegmentsMax = 64;                // each needs a descriptor
  static constexpr size_t kSegmentBytes = size_t{128} << 20;  // untouched pages cost nothing
  static constexpr size_t kSlotBytesMin = 16 << 10;  // smaller payloads travel as bytes anyway

  struct Sizes {  // tests use other sizes
    size_t segment_bytes = kSegmentBytes;
    size_t slot_bytes_min = kSlotBytesMin;
  };
  // kUnavailable: this system does not support such memory.
  static Result<std::shared_ptr<SharedPool>> Create(Sizes sizes);
  static Result<std::shared_ptr<SharedPool>> Create() { return Create(Sizes()); }

  BufferSource source();

  // ---- readers ---------------------------------------------------------------------------------
  // Returns an index of the words in each segment; none if there are kSharedReadersMax readers.
  std::optional<uint32_t> AddReader();
  // Removes a reader that reads no more.
  void RemoveReader(uint32_t reader);

  // The facts that a process needs to map a segment.
  struct Facts {
    int fd;
    uint64_t size_bytes;
  };
  uint32_t segment_count() const;
  Facts segment(uint32_t index) const;  // REQUIRES: index < segment_count()

  // Returns a reference to the bytes, or none if they are not in this pool. REQUIRES: the caller
  // keeps their buffer alive.
  std::optional<SharedReference> Find(std::span<const std::byte> bytes) const;
  // Lets the reader read the named bytes. Returns false if it cannot do so now.
  bool Offer(const SharedReference& reference, uint32_t reader);

 private:
  struct Slot {
    uint32_t segment;
    uint32_t index;
    size_t offset_bytes;
    size_t capacity_bytes;
    uint64_t sequence = 1;
  };
  struct Segment {
    SharedSegment memory;
    size_t used_bytes = kSharedWordsBytes;
    uint32_t slot_count = 0;
    size_t room_bytes() const {
      return slot_count == kSharedSlotsMax ? 0 : memory.size_bytes() - used_bytes;
    }
  };
  using Slots = std::map<const std::byte*, Slot>;

  explicit SharedPool(Sizes sizes) : sizes_(sizes) {}
  FloatBuffer Make(size_t float_count);
  bool Renew(const FloatBuffer& buffer);
  Slots::iterator TakeSlot(size_t capacity_bytes);
  Slots::iterator AddSlot(size_t capacity_bytes);
  Segment* SegmentWithRoom(size_t capacity_bytes);
  bool RenewSlot(Slot& slot);
  Slots::const_iterator SlotAt(const std::byte* address) const;
  std::byte* SlotAddress(const Slot& slot) const {
    return segments_[slot.segment].memory.base() + slot.offset_bytes;
  }
  void GiveBack(const std::byte* address);

  const Sizes sizes_;
  mutable std::mutex mutex_;  // guards all members below
  std::vector<Segment> segments_;
  Slots slots_;                                         // by address
  std::multimap<size_t, const std::byte*> free_slots_;  // by capacity
  std::array<bool, kSharedReadersMax> is_reader_{};
};

}  // namespace pando
