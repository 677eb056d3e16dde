// A shard's image on its way to a new backup (P20): the source's side and the newcomer's. The image
// is the kept versions' parameters, ascending, then the newest one's optimizer state; it is frozen
// by reference, since records are immutable. Called by the lane's parts.
//
// clang-format off
//   source                                         | newcomer
//   -----------------------------------------------+----------------------------------------------
//   sends chunks while less than the window is     | takes a chunk that begins where the last one
//   unacknowledged                                 | ended (or overlaps it); drops others
//   ChunkAck: the window moves on                  | acknowledges after each, taken or not
//   silence: from the last acknowledged float on   |
//   all acknowledged: releases the records         | all taken: the shard has data
// clang-format on
//
// Threads: none.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "proto/messages.h"
#include "server/shard.h"

namespace pando {

inline constexpr size_t kChunkFloats = (256 << 10) / sizeof(float);
inline constexpr size_t kChunkWindowFloats = (1 << 20) / sizeof(float);

class OutgoingTransfer {
 public:
  // `records` as ShardRecords::ShareKept gives them.
  OutgoingTransfer(ShardId shard, ViewId pair, std::vector<VersionRecord> records);

  Version newest() const { return versions_.back(); }
  // The next piece, if the window has room for it.
  std::optional<Chunk> Next();
  // Whether this acknowledges more than was known.
  bool OnAck(const ChunkAck& ack);
  // What is unacknowledged is sent again.
  void Rewind() { sent_floats_ = acked_floats_; }
  bool is_complete() const { return acked_floats_ == image_floats_; }

 private:
  ShardId shard_;
  ViewId pair_;
  std::vector<Version> versions_;
  std::vector<SharedBuffer> pieces_;  // of the image, in its order
  size_t image_floats_ = 0;
  size_t sent_floats_ = 0;
  size_t acked_floats_ = 0;
};

class IncomingTransfer {
 public:
  // What the newcomer knows the image must be made of.
  struct Sizes {
    size_t parameter_floats = 0;  // of each version
    size_t state_floats = 0;
  };
  // Whether a chunk can be a piece of an image of such a shard at all: it came by wire.
  static bool IsSound(const Chunk& chunk, const Sizes& sizes);

  // REQUIRES: IsSound(first, sizes).  Takes nothing of it yet.
  IncomingTransfer(const Chunk& first, const Sizes& sizes);

  // Whether the chunk is of this image.
  bool Includes(const Chunk& chunk) const {
    return chunk.shard == shard_ && chunk.pair == pair_ && chunk.versions == versions_ &&
           chunk.image_floats == image_floats_;
  }
  // REQUIRES: Includes(chunk).
  void Take(const Chunk& chunk);
  ChunkAck Ack() const { return {shard_, pair_, versions_.back(), taken_floats_}; }
  bool is_complete() const { return taken_floats_ == image_floats_; }
  // REQUIRES: is_complete(); once.  Chunks are still acknowledged afterwards.
  std::vector<VersionRecord> TakeRecords();

 private:
  ShardId shard_;
  ViewId pair_;
  std::vector<Version> versions_;
  std::vector<VersionRecord> records_;
  std::vector<std::span<float>> pieces_;  // of the image, in its order; over the records
  size_t image_floats_ = 0;
  size_t taken_floats_ = 0;
};

}  // namespace pando
