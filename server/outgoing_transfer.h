// OutgoingTransfer sends a shard's image to a new backup's IncomingTransfer (P20). The image is the
// parameters of the kept versions, ascending, then the newest one's optimizer state. It refers to
// the records, which are immutable. Replication calls it.
//
// clang-format off
//   source                                         | newcomer
//   -----------------------------------------------+----------------------------------------------
//   sends chunks while less than the window is     | takes a chunk that begins where the last one
//   unacknowledged                                 | ended (or overlaps it); drops others
//   ChunkAck: the window moves on                  | acknowledges after each, taken or not
//   silence: sends all unacknowledged floats again |
//   all acknowledged: releases the records         | all taken: the shard has data
// clang-format on
//
// Threads: none.
#pragma once

#include <optional>
#include <vector>

#include "proto/messages.h"
#include "server/shard_records.h"

namespace pando {

inline constexpr size_t kChunkFloats = (256 << 10) / sizeof(float);
inline constexpr size_t kChunkWindowFloats = (1 << 20) / sizeof(float);

class OutgoingTransfer {
 public:
  // `records` come from ShardRecords::ShareKept.
  OutgoingTransfer(ShardId shard, ViewId pair, std::vector<VersionRecord> records);

  Version newest() const { return versions_.back(); }
  // The hash of the newest record when it was made, if it had to be compared then.
  const std::optional<uint64_t>& hash() const { return hash_; }
  // Returns the next piece, if the window has room for it.
  std::optional<Chunk> Next();
  // Handles an acknowledgement.  Returns whether it acknowledges more floats than before.
  bool OnAck(const ChunkAck& ack);
  // Makes Next return all unacknowledged chunks again.
  void Rewind() { sent_floats_ = acked_floats_; }
  bool is_complete() const { return acked_floats_ == image_floats_; }

 private:
  ShardId shard_;
  ViewId pair_;
  std::vector<Version> versions_;
  std::optional<uint64_t> hash_;
  std::vector<SharedBuffer> pieces_;  // of the image, in its order
  size_t image_floats_ = 0;
  size_t sent_floats_ = 0;
  size_t acked_floats_ = 0;
};

}  // namespace pando
