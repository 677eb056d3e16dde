// ParameterStore holds the newest versions of the parameters, shard by shard as they arrive, and
// lets computing threads wait for the shards that their next layer needs. Written by the protocol
// thread (or the serial trainer), read by computing threads. Threads: any; one writer per (shard,
// version). Owns: one flat vector per version. A reader's hold keeps its version whole, so that a
// late step never sees torn parameters.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "common/blob.h"
#include "common/float_buffer.h"
#include "common/ids.h"
#include "common/status.h"
#include "common/tensor_layout.h"

namespace pando {

class ParameterStore {
 public:
  // Keeps the newest `versions_kept` versions of which something has arrived, and those beyond them
  // that somebody waits for. REQUIRES: `shards` outlives the store.
  ParameterStore(const ShardPlan& shards, uint64_t versions_kept);

  // ---- writer ----
  // Copies one shard. Dropped when it is here already or its version is older than those kept.
  void Put(ShardId shard, Version version, const Blob& payload);
  // The same in two moves for a writer who makes the values in place: writes the shard's floats
  // of the vector, then says so. REQUIRES of Arrived: the version is kept, the shard is new.
  SharedBuffer Writable(Version version);
  void Arrived(ShardId shard, Version version);
  bool IsWhole(Version version) const;
  // Drops everything: versions may begin again at a lower one (P21). Waits end with kInterrupted.
  void Clear();
  // Whether the version is older than those kept: its step is complete everywhere (P4).
  bool IsSuperseded(Version version) const;

  // ---- readers ----
  // The flat vector of a version, to be read where WaitFor has allowed it. kInterrupted when the
  // version is superseded.
  Result<std::shared_ptr<const FloatBuffer>> Open(Version version);
  // Blocks until these shards of an opened version are there. kInterrupted when they are not and
  // `interrupted()` is true, or the version is superseded or cleared away. It is asked with the
  // store locked, at the start and after each Wake.
  Status WaitFor(ShardPlan::Run shards, Version version, const std::function<bool()>& interrupted);
  // Lets every waiting thread ask `interrupted` again.
  void Wake();

  // Time that threads have spent in WaitFor since the start: synchronisation that nothing hides.
  uint64_t waited_us() const;

 private:
  struct Held {
    SharedBuffer values;
    std::vector<bool> has_shard;
    uint32_t missing_count = 0;
  };
  Held& FindOrMake(Version version);                 // REQUIRES: mutex_ held, !IsTooOld(version)
  bool IsTooOld(Version version) const;              // REQUIRES: mutex_ held
  void MarkArrived(ShardId shard, Version version);  // REQUIRES: mutex_ held

  const ShardPlan& shards_;
  const uint64_t versions_kept_;
  BufferPool pool_;

  mutable std::mutex mutex_;  // guards all below; the floats are guarded by has_shard
  std::condition_variable changed_;
  std::map<Version, Held> held_;
  Version newest_arrived_;
  uint64_t waited_us_ = 0;
};

}  // namespace pando
