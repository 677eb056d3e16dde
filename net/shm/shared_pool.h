// Memory of one process that other processes of its host read in place (P42). A SharedPool makes
// and writes segments, and SharedReaders of other processes map them.
//
// Layout. A segment is a sealed memfd and never changes its size (F_SEAL_SHRINK, F_SEAL_GROW), so a
// process that has mapped it can read all of it, regardless of its maker.
//
//   byte 0                     words: one of 8 bytes for each (slot, reader), slot by slot
//   kSharedWordsBytes          slots: each begins at a page
//
// clang-format off
//   word               meaning                                        set by
//   -----------------+----------------------------------------------+----------------------------
//   0                  nothing for this reader                        maker
//   sequence << 1      the slot's contents of that sequence may be    maker, when it names them to
//                        read by this reader                            it; reader, done with them
//   sequence << 1 | 1  the reader reads them                          reader, by compare-and-swap
// clang-format on
//
// The maker writes a slot again only after it has set every word of it to 0, by compare-and-swap,
// and none of them was odd. So memory that is being read is never written, even if the reader is
// slow, stopped or falsely declared dead. A message that was overtaken finds 0 or another sequence,
// and is lost.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/buffer_pool.h"
#include "common/descriptor.h"
#include "common/status.h"

namespace pando {

inline constexpr size_t kSharedReadersMax = 64;
inline constexpr size_t kSharedSlotsMax = 256;  // per segment
inline constexpr size_t kSharedWordsBytes = kSharedSlotsMax * kSharedReadersMax * sizeof(uint64_t);
inline constexpr uint64_t kSharedSegmentBytesMax = uint64_t{1} << 40;

class SharedSegment {
 public:
  // Creates a segment. kUnavailable: the system has no descriptor, no memfd, or no room.
  static Result<SharedSegment> Create(size_t data_bytes);
  // Maps another process's segment of the size that it reports. kCorrupt: the size is wrong, or the
  // segment is not sealed.
  static Result<SharedSegment> Map(UniqueFd fd, uint64_t size_bytes);

  int fd() const { return fd_.get(); }  // the maker's; a reader closes its own after mapping
  size_t size_bytes() const { return base_.get_deleter().size_bytes; }
  std::byte* base() const { return base_.get(); }
  // REQUIRES: slot and reader are below their bounds.
  std::atomic_ref<uint64_t> word(size_t slot, size_t reader) const {
    auto* words = reinterpret_cast<uint64_t*>(base());
    return std::atomic_ref<uint64_t>(words[slot * kSharedReadersMax + reader]);
  }

 private:
  struct Unmap {
    size_t size_bytes;
    void operator()(std::byte* base) const;
  };
  using Mapping = std::unique_ptr<std::byte, Unmap>;
  SharedSegment(UniqueFd fd, Mapping base) : fd_(std::move(fd)), base_(std::move(base)) {}
  static Mapping MapWhole(int fd, size_t size_bytes);

  UniqueFd fd_;
  Mapping base_;
};

inline constexpr uint64_t kNothingOffered = 0;
inline uint64_t OfferedWord(uint64_t sequence) { return sequence << 1; }
inline uint64_t HeldWord(uint64_t sequence) { return sequence << 1 | 1; }
inline bool IsHeldWord(uint64_t word) { return (word & 1) != 0; }

// It replaces a payload's bytes in a message.
struct SharedReference {
  uint32_t segment = 0;  // index among its maker's segments
  uint32_t slot = 0;     // within the segment
  uint64_t sequence = 0;
  uint64_t offset_bytes = 0;  // within the segment
  uint64_t size_bytes = 0;
};

// SharedPool: buffers that peers of this host can read. It is the BufferSource of the pools whose
// blobs travel: a worker's gradients, and a lane's sums and parameters. If shared memory is full,
// it gives heap memory, which travels as bytes. Threads: any. Owns: segments, which grow in
// number but not in size. A slot that is given back is reused. The pool lives as long as its
// buffers.
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

// Called once for each slot of a peer, with its pages, when a payload at its beginning arrives.
// This process can only read them. A GPU's driver registers the memory with it. The result, null if
// there is none, lives as long as the mapping.
using OnMapped = std::function<std::shared_ptr<const void>(std::span<const std::byte> memory)>;

// SharedReader: maps the parts of a SharedPool that a peer of this host lets this process read.
// Only net/shm/shared_link uses it. It trusts no peer: it checks references against the sealed size
// of the segment, and checks a word by taking it. Threads: one; its blobs may be released on any
// thread.
class SharedReader {
 public:
  // `while_reading` stays alive until the reader and all its blobs are gone.
  explicit SharedReader(std::shared_ptr<const void> while_reading, OnMapped on_mapped = {})
      : while_reading_(std::move(while_reading)), on_mapped_(std::move(on_mapped)) {}

  // Maps the peer's next segment, in which this process is `reader`. kCorrupt: the segment is not
  // what the peer described.
  Status Map(uint32_t segment, UniqueFd fd, uint64_t size_bytes, uint32_t reader);

  uint32_t segment_count() const { return static_cast<uint32_t>(mappings_.size()); }

  // Returns the payload, which is not written again while a copy of the blob lives. kUnavailable:
  // it was overtaken and may have been written again. kCorrupt: such a payload cannot exist.
  Result<Blob> Open(const SharedReference& reference);

 private:
  class Mapping;
  std::shared_ptr<const void> while_reading_;
  OnMapped on_mapped_;
  std::vector<std::shared_ptr<Mapping>> mappings_;  // by segment
};

}  // namespace pando
