// OwnerPlan decides which worker computes which micro-batch of the next view, by the workers'
// measured speeds. Part of the scheduler core. Threads: none.
//
// A worker keeps its micro-batches unless workers came or went, a dispute began or ended, or other
// shares would make a step clearly faster.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "scheduler/placement/assignment.h"
#include "scheduler/silences.h"
#include "scheduler/verification.h"

namespace pando {

class OwnerPlan {
 public:
  // All outlive this.
  OwnerPlan(RunFacts& run, const Silences& silences, const GradientComparison& verification)
      : run_(run),
        silences_(silences),
        verification_(verification),
        had_judge_(verification.has_dispute()) {}

  // An earlier life of the scheduler has made the view.
  void Resume();
  void OnHeartbeat(NodeId worker, const Heartbeat& heartbeat) {
    speeds_[worker].Observe(heartbeat.micro_batch_us);
  }
  void Forget(NodeId worker);
  // Requests a view from time to time, if other shares would make a step clearly faster.
  void Tick(Micros now);
  // A view was published.
  void OnView(Micros now);

  // The owners of the next view.
  std::vector<MicroBatchOwner> NextOwners(Micros now);
  // The owners of a generation's first view.
  std::vector<MicroBatchOwner> FirstOwners(Micros now);

  // How long a micro-batch takes this worker; 0 if unknown.
  uint64_t micro_batch_us(NodeId worker) const;

 private:
  std::vector<WorkerSpeed> Speeds(Micros now) const;
  std::vector<NodeId> ShareAll(const std::vector<WorkerSpeed>& speeds) const;
  std::optional<Micros> MeasureStep(Micros now);
  bool IsWorthAView(const std::vector<WorkerSpeed>& speeds, std::optional<Micros> step_time) const;

  RunFacts& run_;
  const Silences& silences_;
  const GradientComparison& verification_;
  std::map<NodeId, SpeedMeter> speeds_;
  std::map<NodeId, Micros> idle_since_;  // members that own no micro-batch
  Micros look_at_{0};                    // when speeds are considered next
  Micros measured_at_{0};
  std::optional<Version> measured_;  // was committed then
  Micros step_time_{0};
  bool has_speed_gain_ = false;
  std::set<NodeId> shared_among_;  // the workers considered, with a share or not
  bool had_judge_;                 // when owners were last decided on
};

}  // namespace pando
