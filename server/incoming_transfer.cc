#include "server/incoming_transfer.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "common/check.h"
#include "common/hash.h"
#include "proto/message_limits.h"

namespace pando {

bool IncomingTransfer::IsSound(const Chunk& chunk, const Sizes& sizes) {
  const size_t versions = chunk.versions.size();
  const size_t floats = chunk.payload.floats().size();
  if (versions == 0 || versions > kImageVersionsMax) return false;
  const auto unordered = std::ranges::adjacent_find(chunk.versions, std::greater_equal());
  if (unordered != chunk.versions.end()) return false;
  if (chunk.image_floats != versions * sizes.parameter_floats + sizes.state_floats) return false;
  return chunk.offset <= chunk.image_floats && floats <= chunk.image_floats - chunk.offset;
}

IncomingTransfer::IncomingTransfer(const Chunk& first, const Sizes& sizes)
    : shard_(first.shard),
      pair_(first.pair),
      versions_(first.versions),
      image_floats_(first.image_floats) {
  for (Version version : versions_) {
    auto parameters = std::make_shared<FloatBuffer>(sizes.parameter_floats);
    pieces_.push_back(parameters->span());
    records_.push_back({version, std::move(parameters), nullptr, std::nullopt});
  }
  records_.back().state = std::make_shared<FloatBuffer>(sizes.state_floats);
  pieces_.push_back(records_.back().state->span());
}

void IncomingTransfer::Take(const Chunk& chunk) {
  PANDO_CHECK(Includes(chunk));
  std::span<const float> floats = chunk.payload.floats();
  if (chunk.offset > taken_floats_ || chunk.offset + floats.size() <= taken_floats_) return;
  floats = floats.subspan(taken_floats_ - chunk.offset);
  size_t at = taken_floats_;
  taken_floats_ += floats.size();
  for (std::span<float> piece : pieces_) {
    if (at < piece.size()) {
      const size_t count = std::min(floats.size(), piece.size() - at);
      std::ranges::copy(floats.first(count), piece.begin() + static_cast<long>(at));
      floats = floats.subspan(count);
      at = piece.size();
    }
    at -= piece.size();
  }
}

std::vector<VersionRecord> IncomingTransfer::TakeRecords() {
  PANDO_CHECK(is_complete());
  pieces_.clear();
  VersionRecord& newest = records_.back();
  hash_ = RecordHash(newest.version, newest.parameters->span(), newest.state->span());
  newest.hash = hash_;
  return std::move(records_);
}

}  // namespace pando
