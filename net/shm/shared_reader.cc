#include "net/shm/shared_reader.h"

#include <utility>

#include <fmt/format.h>

#include "common/mutation.h"
#include "proto/codec.h"

namespace pando {

// One segment. Two blobs of one slot share its word; the last one to go gives it back.
class SharedReader::Mapping {
 public:
  Mapping(SharedSegment memory, uint32_t reader, std::shared_ptr<const void> while_reading)
      : memory_(std::move(memory)), reader_(reader), while_reading_(std::move(while_reading)) {}

  bool Has(const SharedReference& r) const {
    return r.slot < kSharedSlotsMax && r.offset_bytes >= kSharedWordsBytes &&
           r.offset_bytes % kWordBytes == 0 &&  // frames are aligned; encoded shards are not
           r.offset_bytes <= memory_.size_bytes() &&
           r.size_bytes <= memory_.size_bytes() - r.offset_bytes;
  }
  std::span<const std::byte> NamedBytes(const SharedReference& r) const {
    return {memory_.base() + r.offset_bytes, r.size_bytes};
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
    if (Mutated(Mutation::kNoSequenceCheck)) offered = memory_.word(slot, reader_).load();
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
  std::mutex mutex_;  // guards holds_
  std::map<uint32_t, Held> holds_;
};

Status SharedReader::Map(uint32_t segment, UniqueFd fd, uint64_t size_bytes, uint32_t reader) {
  if (segment != mappings_.size() || segment >= SharedPool::kSegmentsMax) {
    return Corrupt(fmt::format("segment {} follows {}", segment, mappings_.size()));
  }
  if (reader >= kSharedReadersMax) return Corrupt(fmt::format("reader {} of a segment", reader));
  Result<SharedSegment> memory = SharedSegment::Map(std::move(fd), size_bytes);
  if (!memory.ok()) return memory.status();
  mappings_.push_back(std::make_shared<Mapping>(*std::move(memory), reader, while_reading_));
  return Status();
}

Result<Blob> SharedReader::Open(const SharedReference& reference) {
  // Named by a link that existed before this one.
  if (reference.segment >= mappings_.size()) return Unavailable("overtaken");
  if (!mappings_[reference.segment]->Has(reference)) {
    return Corrupt(fmt::format("{} bytes at {} of segment {}, which has no such bytes",
                               reference.size_bytes, reference.offset_bytes, reference.segment));
  }
  std::shared_ptr<Mapping> mapping = mappings_[reference.segment];
  if (!mapping->Take(reference.slot, reference.sequence)) return Unavailable("overtaken");
  const std::span<const std::byte> bytes = mapping->NamedBytes(reference);
  auto hold = std::shared_ptr<const void>(
      bytes.data(), [mapping, slot = reference.slot](const void*) { mapping->GiveBack(slot); });
  return Blob(bytes, std::move(hold));
}

}  // namespace pando
