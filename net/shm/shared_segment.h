// SharedSegment: memory of one process that other processes of its host read, and the words that
// say which reader reads what (P42). It is a sealed memfd that a SharedPool makes and writes and
// SharedReaders map.
//
// Layout. A segment never changes its size (F_SEAL_SHRINK, F_SEAL_GROW), so a process that has
// mapped it can read all of it, regardless of its maker.
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
// and none was odd. So memory that is being read is never written, even if the reader is slow,
// stopped or falsely declared dead. A message that was overtaken finds 0 or another sequence, and
// is lost.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "common/status.h"
#include "common/unique_fd.h"

namespace pando {

inline constexpr size_t kSharedReadersMax = 64;
inline constexpr size_t kSharedSlotsMax = 256;  // of a segment
inline constexpr size_t kSharedWordsBytes = kSharedSlotsMax * kSharedReadersMax * sizeof(uint64_t);
inline constexpr uint64_t kSharedSegmentBytesMax = uint64_t{1} << 40;

class SharedSegment {
 public:
  // Makes a new one. kUnavailable: the system has no descriptor, no memfd, or no room.
  static Result<SharedSegment> Create(size_t data_bytes);
  // Maps another process's segment of the size that it reports. kCorrupt: the size is wrong, or it
  // is not sealed.
  static Result<SharedSegment> Map(UniqueFd fd, uint64_t size_bytes);

  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&&) = delete;
  ~SharedSegment();

  int fd() const { return fd_.get(); }  // the maker's; a reader closes its own after mapping
  size_t size_bytes() const { return size_bytes_; }
  std::byte* base() const { return base_; }
  // REQUIRES: both are below their bounds.
  std::atomic_ref<uint64_t> word(size_t slot, size_t reader) const {
    auto* words = reinterpret_cast<uint64_t*>(base_);
    return std::atomic_ref<uint64_t>(words[slot * kSharedReadersMax + reader]);
  }

 private:
  SharedSegment(UniqueFd fd, std::byte* base, size_t size_bytes)
      : fd_(std::move(fd)), base_(base), size_bytes_(size_bytes) {}

  UniqueFd fd_;
  std::byte* base_;
  size_t size_bytes_;
};

inline constexpr uint64_t kNothingOffered = 0;
inline uint64_t OfferedWord(uint64_t sequence) { return sequence << 1; }
inline uint64_t HeldWord(uint64_t sequence) { return sequence << 1 | 1; }
inline bool IsHeldWord(uint64_t word) { return (word & 1) != 0; }

}  // namespace pando
