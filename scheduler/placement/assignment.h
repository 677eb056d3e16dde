// Which worker computes which micro-batches. Pure functions of the workers and of the owners so
// far. Called by OwnerPlan.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "proto/messages.h"

namespace pando {

// How long a micro-batch takes a worker, as its heartbeats say, smoothed over time.
class SpeedMeter {
 public:
  void Observe(uint64_t micro_batch_us);  // 0: unknown, changes nothing
  uint64_t micro_batch_us() const { return static_cast<uint64_t>(micro_batch_us_); }

 private:
  double micro_batch_us_ = 0;
};

struct WorkerSpeed {
  NodeId worker;
  uint64_t micro_batch_us = 0;  // 0: unknown, counts as the mean of the known ones
  bool is_on_trial = false;     // has had nothing to compute for long: its speed is an old one
};

// How many micro-batches each worker gets, so that the slowest ends as early as possible. Workers
// of equal or unknown speed get even shares: worker i of w gets [iN/w, (i+1)N/w). A worker on trial
// gets at least one, from the worker that has the most, if the donor keeps at least one.
std::vector<uint32_t> ShareMicroBatches(uint32_t count, const std::vector<WorkerSpeed>& workers);

// How long a step takes with these shares of micro-batches; 0 if no speed is known.
uint64_t StepMicros(const std::vector<uint32_t>& shares, const std::vector<WorkerSpeed>& workers);

// The worker of each micro-batch: contiguous runs in the order of `workers`, which are few
// subtrees.  REQUIRES: shares add up to the count of micro-batches, or there are no workers.
std::vector<NodeId> SpreadInRuns(const std::vector<uint32_t>& shares,
                                 const std::vector<WorkerSpeed>& workers, uint32_t count);

struct HandOver {
  std::function<bool(NodeId)> is_living;
  Step lowest;      // the lowest incomplete step, as far as known
  Step first_step;  // of a new owner, if the one before it lives
};
// P18. The owners that give each micro-batch to `workers`. If the present owner lives, it continues
// until the new one's first step; else the new one starts at the lowest incomplete step. A
// hand-over under way keeps its first step.
std::vector<MicroBatchOwner> HandOverTo(const std::vector<NodeId>& workers,
                                        const std::vector<MicroBatchOwner>& before,
                                        const HandOver& options);

}  // namespace pando
