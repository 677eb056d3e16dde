// KeptVersion is what a ParameterStore keeps of one version of the parameters. Each way to keep
// them is a class: FlatVersion copies every shard into one vector, InPlaceVersion holds the
// payloads that readers can read themselves, EncodedVersion keeps them encoded for readers that
// decode, and LayeredVersion has memory only for the shards that a thread has asked for (ZeRO stage
// 3). Threads: the store's lock guards all but the floats, which do not change after their shard
// has arrived.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/blob.h"
#include "common/buffer_pool.h"
#include "common/ids.h"
#include "plan/payload_plan.h"
#include "plan/shard_plan.h"
#include "train/held_bytes.h"

namespace pando {

class KeptVersion {
 public:
  using Run = ShardPlan::Run;
  struct Parts {  // all outlive it
    const ShardPlan& shards;
    const PayloadPlan* payloads;  // null: payloads are floats
    BufferPool& pool;             // of flat vectors
    HeldBytes& held_bytes;
  };
  // `serial` tells it from all other versions of its store.
  KeptVersion(const Parts& parts, uint64_t serial);
  virtual ~KeptVersion() = default;

  uint64_t serial() const { return serial_; }
  bool HasShard(uint32_t shard) const { return has_shard_[shard]; }
  bool is_whole() const { return missing_count_ == 0; }
  size_t MissingCount(Run shards) const;
  // REQUIRES: the shard is new.
  void MarkArrived(ShardId shard);

  // ---- writer ----
  // Keeps the payload itself, if readers can read it. Returns false if it has to be copied.
  virtual bool KeepPayload(ShardId, const Blob&) { return false; }
  // Returns the memory for a shard's floats; empty if no thread has asked for the shard.
  virtual std::span<float> MemoryFor(ShardId shard) = 0;
  // Copies or decodes the payload into that memory. The store's lock is not needed, because no
  // thread reads the shard yet.  REQUIRES: the payload has the size that Parts::payloads says.
  void Write(ShardId shard, const Blob& payload, std::span<float> memory) const;
  // The written shard has arrived.
  virtual void EndWrite(ShardId) {}
  // Returns the flat vector.  REQUIRES: all shards that have arrived are in it.
  virtual SharedBuffer WholeVector();

  // ---- readers ----
  // Counts one more thread that needs these shards. Returns those that no thread needed before:
  // they have to be fetched.
  virtual std::vector<ShardId> Ask(Run) { return {}; }
  // One thread fewer needs these shards.
  virtual void Release(Run) {}
  // The flat vector of the copied shards.
  virtual const float* values() const = 0;
  // One shard as it is kept.  REQUIRES: it has arrived.
  virtual std::span<const float> KeptShard(ShardId shard) const;
  // One shard's floats.  REQUIRES: it has arrived.
  virtual std::vector<float> ReadShard(ShardId shard) const;

 protected:
  // The place of a shard in the flat vector, and the decoder of its payloads; null: none is needed.
  virtual ShardRange Place(ShardId shard) const { return parts_.shards.range(shard); }
  virtual const ShardCodec* Decoder(ShardId shard) const {
    return parts_.payloads != nullptr ? parts_.payloads->codec(shard) : nullptr;
  }
  void MarkMissing(uint32_t shard);

  const Parts parts_;

 private:
  const uint64_t serial_;
  std::vector<bool> has_shard_;
  uint32_t missing_count_;
};

struct KeptVersionOptions {
  bool is_layered = false;
  bool keeps_encoded = false;
  // Returns whether readers can read a payload itself; none: all are copied. Outlives them.
  const std::function<bool(const Blob& payload)>& is_read_in_place;
};
std::shared_ptr<KeptVersion> MakeKeptVersion(const KeptVersion::Parts& parts, uint64_t serial,
                                             const KeptVersionOptions& options);

}  // namespace pando
