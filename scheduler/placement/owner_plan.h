// OwnerPlan assigns the micro-batches of the next view to workers, by their measured speeds.
//
// A worker keeps its micro-batches unless workers joined or left, a dispute began or ended, or
// other shares would make a step clearly faster.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "proto/messages.h"
#include "scheduler/gradient_comparison.h"
#include "scheduler/members/silences.h"

namespace pando {

// ---- pure functions of the workers and of the owners so far ------------------------------------

// SpeedMeter smooths a worker's time for a micro-batch, which its heartbeats report.
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
  bool is_on_trial = false;     // has computed nothing for long, so its speed is outdated
};

// Returns how many micro-batches each worker gets, so that the slowest ends as early as possible.
// Workers of equal or unknown speed get even shares: worker i of w gets [iN/w, (i+1)N/w). A worker
// on trial gets at least one, from the worker that has the most, if the donor keeps at least one.
std::vector<uint32_t> ShareMicroBatches(uint32_t count, const std::vector<WorkerSpeed>& workers);

// Returns how long a step takes with these shares of micro-batches; 0 if no speed is known.
uint64_t StepMicros(const std::vector<uint32_t>& shares, const std::vector<WorkerSpeed>& workers);

// Returns the worker of each micro-batch: contiguous runs in the order of `workers`, so that each
// is few subtrees.  REQUIRES: shares add up to the count of micro-batches, or there are no workers.
std::vector<NodeId> SpreadInRuns(const std::vector<uint32_t>& shares,
                                 const std::vector<WorkerSpeed>& workers, uint32_t count);

struct HandOver {
  std::function<bool(NodeId)> is_living;
  Step lowest;      // the lowest incomplete step, as far as is known
  Step first_step;  // where a new owner begins, if the present owner lives
};
// P18. Returns the owners that give each micro-batch to `workers`. If the present owner lives, it
// continues until the new one's first step; else the new one starts at the lowest incomplete step.
// A hand-over in progress keeps its first step.
std::vector<MicroBatchOwner> HandOverTo(const std::vector<NodeId>& workers,
                                        const std::vector<MicroBatchOwner>& before,
                                        const HandOver& options);

// StragglerMeter finds the workers that the others wait for although their micro-batches are quick:
// processes that get little processor time or have a slow connection. Its samples are heartbeats.
class StragglerMeter {
 public:
  void Observe(NodeId worker, const Heartbeat& heartbeat);
  // Judges the time since the last call. `shares`: micro-batches of each worker. `step_time`: how
  // long a step takes.
  void Judge(const std::map<NodeId, uint32_t>& shares, Micros step_time);
  void Forget(NodeId worker);
  // Returns a straggler's part of the step time per micro-batch; 0 for other workers. The figure
  // stays while the straggler has no share.
  uint64_t micro_batch_us(NodeId worker) const;

 private:
  struct Samples {
    uint32_t count = 0;
    uint32_t waiting = 0;  // the samples in which it waited for parameters
  };
  std::map<NodeId, Samples> samples_;
  std::map<NodeId, uint64_t> micro_batch_us_;  // only stragglers have an entry
};

// ---- the plan -----------------------------------------------------------------------------------

class OwnerPlan {
 public:
  OwnerPlan(const JobPlan& plan, ViewLedger& views, const RunPhase& phase,
            const RunProgress& progress, const Members& members, const Silences& silences,
            const GradientComparison& verification)
      : plan_(plan),
        views_(views),
        phase_(phase),
        progress_(progress),
        members_(members),
        silences_(silences),
        verification_(verification),
        had_judge_(verification.has_dispute()) {}

  // Continues with the view that an earlier life of the scheduler made.
  void Resume();
  void OnHeartbeat(NodeId worker, const Heartbeat& heartbeat) {
    speeds_[worker].Observe(heartbeat.micro_batch_us);
    stragglers_.Observe(worker, heartbeat);
  }
  void Forget(NodeId worker);
  // Requests a view from time to time, if other shares would make a step clearly faster.
  void Tick(Micros now);
  // Notes which members own no micro-batch in the new view.
  void OnView(Micros now);

  // Returns the owners of the next view.
  std::vector<MicroBatchOwner> NextOwners(Micros now);
  // Returns the owners of a generation's first view.
  std::vector<MicroBatchOwner> FirstOwners(Micros now);

  // Returns how long a micro-batch takes this worker; 0 if unknown.
  uint64_t micro_batch_us(NodeId worker) const;
  const StragglerMeter& stragglers() const { return stragglers_; }

 private:
  std::vector<WorkerSpeed> Speeds(Micros now) const;
  std::vector<NodeId> ShareAll(const std::vector<WorkerSpeed>& speeds) const;
  std::optional<Micros> MeasureStep(Micros now);
  bool IsWorthAView(const std::vector<WorkerSpeed>& speeds, std::optional<Micros> step_time) const;

  const JobPlan& plan_;
  ViewLedger& views_;
  const RunPhase& phase_;
  const RunProgress& progress_;
  const Members& members_;
  const Silences& silences_;
  const GradientComparison& verification_;
  std::map<NodeId, SpeedMeter> speeds_;
  StragglerMeter stragglers_;
  std::map<NodeId, Micros> idle_since_;  // members that own no micro-batch
  Micros look_at_{0};                    // when Tick compares speeds next
  Micros measured_at_{0};
  std::optional<Version> measured_;  // the version that was committed at measured_at_
  Micros step_time_{0};
  bool has_speed_gain_ = false;
  std::set<NodeId> shared_among_;  // the workers that the last shares considered
  bool had_judge_;                 // whether a dispute was open when owners were last chosen
};

}  // namespace pando
