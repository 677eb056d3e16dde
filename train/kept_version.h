// KeptVersion is what a ParameterStore keeps of one version of the parameters. Each way to keep
// them is a class: FlatVersion copies every shard into one vector, InPlaceVersion holds the
// payloads that readers can read themselves, EncodedVersion keeps them encoded for readers that
// decode, and LayeredVersion has memory only for the shards that a thread has asked for (ZeRO stage
// 3). Threads: the store's lock guards all but the floats, which nobody writes after their shard
// has arrived.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/blob.h"
#include "common/buffer_pool.h"
#include "common/ids.h"
#include "plan/payload_plan.h"
#include "plan/shard_plan.h"
#include "train/held_bytes.h"
#include "train/paged_floats.h"

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

class FlatVersion : public KeptVersion {
 public:
  using KeptVersion::KeptVersion;
  // Returns the flat vector, and makes it if there is none yet.
  const SharedBuffer& Whole();
  // Whether every shard that has arrived is in the flat vector.
  virtual bool is_copied() const { return true; }
  std::span<float> MemoryFor(ShardId shard) override;
  const float* values() const override { return whole_ == nullptr ? nullptr : whole_->data(); }

 private:
  SharedBuffer whole_;
};

class InPlaceVersion : public FlatVersion {
 public:
  using CanRead = std::function<bool(const Blob& payload)>;
  // `can_read` outlives it. It says whether readers can read a payload itself.
  InPlaceVersion(const Parts& parts, uint64_t serial, const CanRead& can_read);
  bool is_copied() const override;
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

}  // namespace pando
