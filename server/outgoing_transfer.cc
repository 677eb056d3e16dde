#include "server/outgoing_transfer.h"

#include <algorithm>

namespace pando {

OutgoingTransfer::OutgoingTransfer(ShardId shard, ViewId pair, std::vector<VersionRecord> records)
    : shard_(shard), pair_(pair), hash_(records.back().hash) {
  for (const VersionRecord& record : records) {
    versions_.push_back(record.version);
    pieces_.push_back(record.parameters);
  }
  pieces_.push_back(records.back().state);
  for (const SharedBuffer& piece : pieces_) image_floats_ += piece->size();
}

// A chunk lies within one piece, so that its payload is the record's memory.
std::optional<Chunk> OutgoingTransfer::Next() {
  if (sent_floats_ == image_floats_) return std::nullopt;
  if (sent_floats_ - acked_floats_ >= kChunkWindowFloats) return std::nullopt;
  size_t at = sent_floats_;
  auto piece = pieces_.begin();
  for (; at >= (*piece)->size(); ++piece) at -= (*piece)->size();
  const size_t count = std::min(kChunkFloats, (*piece)->size() - at);
  Chunk chunk{.shard = shard_,
              .pair = pair_,
              .versions = versions_,
              .image_floats = image_floats_,
              .offset = sent_floats_,
              .payload = ToBlob(*piece, at, count)};
  sent_floats_ += count;
  return chunk;
}

bool OutgoingTransfer::OnAck(const ChunkAck& ack) {
  if (ack.newest != newest() || ack.floats_taken > image_floats_) return false;
  if (ack.floats_taken <= acked_floats_) return false;
  acked_floats_ = ack.floats_taken;
  sent_floats_ = std::max(sent_floats_, acked_floats_);
  if (is_complete()) pieces_.clear();
  return true;
}

}  // namespace pando
