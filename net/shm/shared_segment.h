// SharedSegment is memory of one process that other processes of its host read in place (P42). A
// SharedPool makes and writes segments, and SharedReaders of other processes map them.
// net/shm/shared_pool.cc implements it.
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

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "common/result.h"
#include "common/unique_fd.h"

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

}  // namespace pando
