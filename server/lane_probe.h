// LaneProbe records what a lane works on, for a timeline. The lane has no clock: the implementation
// has one (node/process_timeline). The simulator and the tests have none.
#pragma once

#include <cstdint>

#include "common/ids.h"

namespace pando {

enum class LaneWork : uint8_t {
  kAggregate,  // a contribution is added to the sum
  kUpdate,     // the next record is made, as primary or as backup
  kCommit,     // a version is shown from now on: waiting workers get it, it is stored
};

// Threads: called on the lane's thread. Begin and End come in pairs, none within another.
class LaneProbe {
 public:
  virtual ~LaneProbe() = default;
  virtual void Begin(LaneWork work, ShardId shard, Step step) = 0;
  virtual void End() = 0;
  // The step's root is about to be sent to the backups; the version that it makes is committed,
  // with or without backups.
  virtual void OnReplicating(ShardId shard, Step step) = 0;
  virtual void OnCommitted(ShardId shard, Step step) = 0;
};

// Lasts to the end of the block. `probe` may be null.
class ProbedWork {
 public:
  ProbedWork(LaneProbe* probe, LaneWork work, ShardId shard, Step step) : probe_(probe) {
    if (probe_ != nullptr) probe_->Begin(work, shard, step);
  }
  ~ProbedWork() {
    if (probe_ != nullptr) probe_->End();
  }
  ProbedWork(const ProbedWork&) = delete;

 private:
  LaneProbe* const probe_;
};

}  // namespace pando
