// IncomingTransfer is the newcomer's side of a transfer (server/outgoing_transfer.h).
#pragma once

#include <span>
#include <vector>

#include "proto/messages.h"
#include "server/shard_records.h"

namespace pando {

class IncomingTransfer {
 public:
  // The sizes that the image must have.
  struct Sizes {
    size_t parameter_floats = 0;  // per version
    size_t state_floats = 0;
  };
  // Returns whether the chunk, which came over a network, can belong to an image of these sizes.
  static bool IsSound(const Chunk& chunk, const Sizes& sizes);

  // REQUIRES: IsSound(first, sizes). Does not take the floats of `first`.
  IncomingTransfer(const Chunk& first, const Sizes& sizes);

  // Returns whether the chunk belongs to this image.
  bool Includes(const Chunk& chunk) const {
    return chunk.shard == shard_ && chunk.pair == pair_ && chunk.versions == versions_ &&
           chunk.image_floats == image_floats_;
  }
  // REQUIRES: Includes(chunk).
  void Take(const Chunk& chunk);
  ChunkAck Ack() const { return {shard_, pair_, versions_.back(), taken_floats_, hash_}; }
  bool is_complete() const { return taken_floats_ == image_floats_; }
  // Returns the records, once. Later chunks are still acknowledged, with the newest record's hash.
  // REQUIRES: is_complete().
  std::vector<VersionRecord> TakeRecords();

 private:
  ShardId shard_;
  ViewId pair_;
  std::vector<Version> versions_;
  std::vector<VersionRecord> records_;
  std::vector<std::span<float>> pieces_;  // of the image, in its order; they point into the records
  size_t image_floats_ = 0;
  size_t taken_floats_ = 0;
  uint64_t hash_ = 0;  // of the newest record, once it is complete
};

}  // namespace pando
