// ParameterStore holds the newest versions of the parameters, shard by shard as they arrive, and
// lets computing threads wait for the shards that their next layer needs. Written by the protocol
// thread (or the serial trainer), read by computing threads. A reader's hold keeps its version
// whole, so that a late step never sees torn parameters.
//
// The options say how versions are kept (train/kept_version.h). With layer residency (ZeRO stage 3)
// a shard is stored only if a thread has asked for it. Its memory is released when no thread holds
// it any more. The first thread that asks for a shard fetches it.
//
// Threads: any; one writer per (shard, version). Owns: the versions.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "common/blob.h"
#include "common/buffer_pool.h"
#include "common/ids.h"
#include "common/result.h"
#include "plan/job.h"
#include "plan/payload_plan.h"
#include "plan/shard_plan.h"
#include "train/held_bytes.h"
#include "train/kept_version.h"

namespace pando {

class ParameterStore {
 public:
  static constexpr std::chrono::milliseconds kAskInterval{50};

  struct Options {
    // How many versions are kept: the newest ones of which a shard has arrived. Newer ones that a
    // thread waits for are kept too.
    uint64_t versions_kept = 1;
    ParameterResidency residency = ParameterResidency::kAll;
    BufferPool::Make make = [](size_t count) {
      return FloatBuffer(count);
    };                                      // makes flat vectors, if all is resident
    const PayloadPlan* payloads = nullptr;  // how the shards of Put are encoded; null: not at all
    // Keeps encoded payloads, which readers decode.  REQUIRES: all is resident; is_read_in_place.
    bool keeps_encoded = false;
    // Returns whether readers can read this payload itself. It is then not copied, but held for as
    // long as its version. Without this function all is copied.  REQUIRES: all is resident.
    std::function<bool(const Blob& payload)> is_read_in_place = {};
  };
  // `shards` and `held_bytes` outlive the store.
  ParameterStore(const ShardPlan& shards, const Options& options, HeldBytes& held_bytes);

  // ---- writer ----
  // Copies one shard, decodes it, or keeps the payload itself. The shard is dropped if the store
  // has it already, if its version is older than those kept, or, with layer residency, if no thread
  // has asked for it.  REQUIRES: the payload has the size that options.payloads say.
  void Put(ShardId shard, Version version, const Blob& payload);
  // The same in two calls for a writer that makes the values in place: it writes the shard's floats
  // into the vector, then calls Arrived.  REQUIRES: all is resident and floats; for Arrived, the
  // version is kept and the shard is new.
  SharedBuffer Writable(Version version);
  void Arrived(ShardId shard, Version version);
  bool IsWhole(Version version) const;
  bool is_layered() const { return options_.residency == ParameterResidency::kLayer; }
  // Whether Open may be called.
  bool is_copied_whole() const { return !is_layered() && !options_.is_read_in_place; }
  // Drops everything: versions may begin again at a lower one (P21). Waits end with kInterrupted.
  void Clear();
  // This version and older ones will not arrive any more. Waits for them end with kInterrupted.
  void Supersede(Version version);
  // Returns whether the version is older than those kept: its step is complete everywhere (P4).
  bool IsSuperseded(Version version) const;

  // ---- readers ----
  // A computing thread's hold on one version, for one pass over the layers. Threads: one at a time.
  class Hold {
   public:
    using Run = ShardPlan::Run;
    // Gets the shards that no thread had asked for. Called without locks.
    using Fetch = std::function<void(const std::vector<ShardId>& shards)>;

    Hold(Hold&&) noexcept = default;
    ~Hold();  // gives everything back

    // Identifies the buffer. It changes if another version is held, or the same version after
    // Clear.
    uint64_t serial() const;
    // The flat vector. Read only shards that Advance has allowed.  REQUIRES: all is copied floats.
    const float* values() const;
    // One shard as it is kept. Read it only if Advance has allowed it.
    const float* kept_shard(ShardId shard) const;
    // One shard's floats.  REQUIRES: Advance has allowed it.
    std::vector<float> ReadShard(ShardId shard) const;
    // Blocks until the shards of `now` have arrived. With layer residency it first asks for them
    // and for those of `next`, and gives back all others. kInterrupted: they have not arrived, and
    // `interrupted()` is true, or the version is superseded or was cleared. `interrupted` is called
    // with the store locked, at the start, after each Wake, and every kAskInterval.
    Status Advance(Run now, Run next, const std::function<bool()>& interrupted, const Fetch& fetch);

   private:
    friend class ParameterStore;
    Hold(ParameterStore& store, Version version, std::shared_ptr<KeptVersion> kept)
        : store_(&store), version_(version), kept_(std::move(kept)) {}
    ParameterStore* store_;
    Version version_;
    std::shared_ptr<KeptVersion> kept_;  // null: moved from
    Run now_;                            // these are counted as ours
    Run next_;
  };
  // kInterrupted when the version is superseded, or the work is dropped. `is_dropped` is checked
  // under the lock. Otherwise work dropped before Clear could hold a version of the new generation,
  // and its requests would be ignored.
  Result<Hold> HoldVersion(Version version, const std::function<bool()>& is_dropped = {});
  // The flat vector of a version that is whole.  REQUIRES: all is resident, and copied.
  Result<std::shared_ptr<const FloatBuffer>> Open(Version version);
  // Lets every waiting thread ask `interrupted` again.
  void Wake();

  // Time that threads have spent waiting since the start: synchronisation that nothing hides.
  uint64_t waited_us() const;

 private:
  using Run = ShardPlan::Run;
  // A thread that sleeps until these shards are there.
  struct Waiter {
    const KeptVersion* kept;
    Version version;
    Run shards;
    size_t missing_count;
  };
  // All REQUIRE: mutex_ held.
  const std::shared_ptr<KeptVersion>& FindOrMake(Version version);  // REQUIRES: !IsTooOld(version)
  bool IsTooOld(Version version) const;
  bool IsGone(const std::shared_ptr<KeptVersion>& kept, Version version) const;
  void DropTooOld();
  void MarkArrived(KeptVersion& kept, ShardId shard, Version version);
  Status Await(std::unique_lock<std::mutex>& lock, const std::shared_ptr<KeptVersion>& kept,
               Version version, Run shards, const std::function<bool()>& interrupted);

  const ShardPlan& shards_;
  const Options options_;
  HeldBytes& held_bytes_;
  BufferPool pool_;  // of flat vectors

  mutable std::mutex mutex_;  // guards all below, and the versions except their floats
  std::condition_variable changed_;
  std::map<Version, std::shared_ptr<KeptVersion>> versions_;
  std::vector<Waiter*> waiters_;
  Version newest_arrived_;
  Version oldest_;  // older ones are superseded
  uint64_t last_serial_ = 0;
  uint64_t waited_us_ = 0;
};

}  // namespace pando
