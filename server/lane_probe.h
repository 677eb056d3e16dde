// LaneProbe records a lane's work for a timeline. Its implementation has the clock, because a lane
// has none (node/process_timeline). The simulator and the tests have no probe.
#pragma once

#include <cstdint>

#include "common/ids.h"

namespace pando {

enum class LaneWork : uint8_t {
  kAggregate,  // a contribution is added to the sum
  kUpdate,     // the next record is made, as primary or as backup
  kCommit,     // a version becomes visible: waiting workers get it, and it is stored
};

// Threads: the lane's. Begin and End come in pairs, which are never nested.
class LaneProbe {
 public:
  virtual ~LaneProbe() = default;
  virtual void Begin(LaneWork work, ShardId shard, Step step) = 0;
  virtual void End() = 0;
  // OnReplicating: the step's root is about to be sent to the backups. OnCommitted: the version
  // that it makes is committed, with or without backups.
  virtual void OnReplicating(ShardId shard, Step step) = 0;
  virtual void OnCommitted(ShardId shard, Step step) = 0;

  // Records work until the end of the block. `probe` may be null.
  class Scope {
   public:
    Scope(LaneProbe* probe, LaneWork work, ShardId shard, Step step) : probe_(probe) {
      if (probe_ != nullptr) probe_->Begin(work, shard, step);
    }
    ~Scope() {
      if (probe_ != nullptr) probe_->End();
    }
    Scope(const Scope&) = delete;

   private:
    LaneProbe* const probe_;
  };
};

}  // namespace pando
