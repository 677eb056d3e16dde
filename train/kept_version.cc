#include "train/kept_version.h"

#include <algorithm>

#include "common/check.h"
#include "train/paged_floats.h"

namespace pando {

KeptVersion::KeptVersion(const Parts& parts, uint64_t serial)
    : parts_(parts),
      serial_(serial),
      has_shard_(parts.shards.shard_count()),
      missing_count_(parts.shards.shard_count()) {}

size_t KeptVersion::MissingCount(Run shards) const {
  const auto begin = has_shard_.begin();
  return static_cast<size_t>(std::count(begin + shards.first, begin + shards.last, false));
}

void KeptVersion::MarkArrived(ShardId shard) {
  PANDO_CHECK(!has_shard_[shard.value()]);
  has_shard_[shard.value()] = true;
  --missing_count_;
}

void KeptVersion::MarkMissing(uint32_t shard) {
  has_shard_[shard] = false;
  ++missing_count_;
}

void KeptVersion::Write(ShardId shard, const Blob& payload, std::span<float> memory) const {
  if (const ShardCodec* decoder = Decoder(shard)) return decoder->Decode(payload.bytes(), memory);
  PANDO_CHECK(payload.floats().size() == memory.size());
  std::ranges::copy(payload.floats(), memory.begin());
}

SharedBuffer KeptVersion::WholeVector() {
  PANDO_CHECK(false);
  return nullptr;
}

std::span<const float> KeptVersion::KeptShard(ShardId shard) const {
  const ShardRange place = Place(shard);
  return {values() + place.first, place.size()};
}

std::vector<float> KeptVersion::ReadShard(ShardId shard) const {
  const std::span<const float> kept = KeptShard(shard);
  return {kept.begin(), kept.end()};
}

namespace {

class FlatVersion : public KeptVersion {
 public:
  using KeptVersion::KeptVersion;
  SharedBuffer WholeVector() override { return Whole(); }
  std::span<float> MemoryFor(ShardId shard) override;
  const float* values() const override { return whole_ == nullptr ? nullptr : whole_->data(); }

 private:
  const SharedBuffer& Whole();  // makes it if there is none

  SharedBuffer whole_;
};

class InPlaceVersion : public FlatVersion {
 public:
  using CanRead = std::function<bool(const Blob& payload)>;
  InPlaceVersion(const Parts& parts, uint64_t serial, const CanRead& can_read);
  SharedBuffer WholeVector() override;
  bool KeepPayload(ShardId shard, const Blob& payload) override;
  std::span<const float> KeptShard(ShardId shard) const override;

 private:
  const CanRead& can_read_;
  std::vector<Blob> payloads_;  // by shard; empty: it was copied, or has not arrived
};

class EncodedVersion : public InPlaceVersion {
 public:
  using InPlaceVersion::InPlaceVersion;
  std::vector<float> ReadShard(ShardId shard) const override;

 protected:
  ShardRange Place(ShardId shard) const override { return parts_.payloads->range(shard); }
  const ShardCodec* Decoder(ShardId) const override { return nullptr; }
};

class LayeredVersion : public KeptVersion {
 public:
  LayeredVersion(const Parts& parts, uint64_t serial);
  std::span<float> MemoryFor(ShardId shard) override;
  void EndWrite(ShardId shard) override { Release({shard.value(), shard.value() + 1}); }
  std::vector<ShardId> Ask(Run shards) override;
  void Release(Run shards) override;
  const float* values() const override { return pages_.data(); }

 private:
  void Drop(uint32_t shard);
  uint64_t ShardBytes(uint32_t shard) const {
    return parts_.shards.range(ShardId(shard)).size() * sizeof(float);
  }

  PagedFloats pages_;
  std::vector<uint32_t> asker_counts_;  // by shard; a thread that writes it is counted too
  std::vector<bool> has_memory_;        // by shard
};

// ---- FlatVersion, InPlaceVersion, EncodedVersion ------------------------------------------------

const SharedBuffer& FlatVersion::Whole() {
  if (whole_ != nullptr) return whole_;
  const size_t made_before = parts_.pool.made_count();
  whole_ = parts_.pool.Take();
  parts_.held_bytes.Add((parts_.pool.made_count() - made_before) * whole_->size() * sizeof(float));
  return whole_;
}

std::span<float> FlatVersion::MemoryFor(ShardId shard) {
  const ShardRange place = Place(shard);
  return Whole()->span().subspan(place.first, place.size());
}

InPlaceVersion::InPlaceVersion(const Parts& parts, uint64_t serial, const CanRead& can_read)
    : FlatVersion(parts, serial), can_read_(can_read), payloads_(parts.shards.shard_count()) {}

SharedBuffer InPlaceVersion::WholeVector() {
  PANDO_CHECK(std::ranges::all_of(payloads_, [](const Blob& b) { return b.size_bytes() == 0; }));
  return FlatVersion::WholeVector();
}

bool InPlaceVersion::KeepPayload(ShardId shard, const Blob& payload) {
  if (Decoder(shard) != nullptr || !can_read_(payload)) return false;
  PANDO_CHECK(payload.floats().size() == Place(shard).size());
  payloads_[shard.value()] = payload;
  return true;
}

std::span<const float> InPlaceVersion::KeptShard(ShardId shard) const {
  const Blob& payload = payloads_[shard.value()];
  return payload.size_bytes() > 0 ? payload.floats() : FlatVersion::KeptShard(shard);
}

std::vector<float> EncodedVersion::ReadShard(ShardId shard) const {
  std::vector<float> floats(parts_.shards.range(shard).size());
  parts_.payloads->codec(shard)->Decode(std::as_bytes(KeptShard(shard)), floats);
  return floats;
}

// ---- LayeredVersion -----------------------------------------------------------------------------

LayeredVersion::LayeredVersion(const Parts& parts, uint64_t serial)
    : KeptVersion(parts, serial),
      pages_(parts.shards.ranges().back().last),
      asker_counts_(parts.shards.shard_count()),
      has_memory_(parts.shards.shard_count()) {}

std::span<float> LayeredVersion::MemoryFor(ShardId shard) {
  const uint32_t s = shard.value();
  if (asker_counts_[s] == 0) return {};
  ++asker_counts_[s];  // until it has arrived, even if its readers release it
  has_memory_[s] = true;
  parts_.held_bytes.Add(ShardBytes(s));
  const ShardRange place = Place(shard);
  return {pages_.data() + place.first, place.size()};
}

std::vector<ShardId> LayeredVersion::Ask(Run shards) {
  std::vector<ShardId> wanted;
  for (uint32_t s = shards.first; s < shards.last; ++s) {
    if (asker_counts_[s]++ == 0) wanted.emplace_back(s);
  }
  return wanted;
}

void LayeredVersion::Release(Run shards) {
  for (uint32_t s = shards.first; s < shards.last; ++s) {
    if (--asker_counts_[s] == 0 && has_memory_[s]) Drop(s);
  }
}

// Pages that the shard shares with a neighbour in memory stay until the neighbour goes.
void LayeredVersion::Drop(uint32_t shard) {
  has_memory_[shard] = false;
  MarkMissing(shard);
  parts_.held_bytes.Remove(ShardBytes(shard));
  const size_t page = PagedFloats::page_floats();
  const auto range_of = [&](uint32_t s) { return parts_.shards.range(ShardId(s)); };
  const auto is_in_memory = [&](uint32_t s, size_t first, size_t last) {
    const ShardRange range = range_of(s);
    return has_memory_[s] && range.first < last && first < range.last;
  };
  size_t first = range_of(shard).first / page * page;
  size_t last = (range_of(shard).last + page - 1) / page * page;
  for (uint32_t s = shard; s-- > 0 && range_of(s).last > first;) {
    if (is_in_memory(s, first, first + page)) first += page;
  }
  for (uint32_t s = shard + 1; s < parts_.shards.shard_count(); ++s) {
    if (first >= last || range_of(s).first >= last) break;
    if (is_in_memory(s, last - page, last)) last -= page;
  }
  pages_.GiveBack(first, last);
}

}  // namespace

std::shared_ptr<KeptVersion> MakeKeptVersion(const KeptVersion::Parts& parts, uint64_t serial,
                                             const KeptVersionOptions& options) {
  const auto& is_read_in_place = options.is_read_in_place;
  if (options.is_layered) return std::make_shared<LayeredVersion>(parts, serial);
  if (options.keeps_encoded)
    return std::make_shared<EncodedVersion>(parts, serial, is_read_in_place);
  if (is_read_in_place) return std::make_shared<InPlaceVersion>(parts, serial, is_read_in_place);
  auto flat = std::make_shared<FlatVersion>(parts, serial);
  flat->WholeVector();
  return flat;
}

}  // namespace pando
