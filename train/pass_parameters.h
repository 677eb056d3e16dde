// The plan of a pass says which shards each layer reads, and which are final after it.
// PassParameters holds the parameters that one pass reads, as they arrive. Made by MicroBatchPass;
// the launchers wait here before each layer.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "common/batch.h"
#include "common/status.h"
#include "models/network.h"
#include "plan/job_plan.h"
#include "train/parameter_store.h"
#include "train/step_timeline.h"

namespace pando {

// ---- the plan of a pass: pure functions of the job's plan and the network -----------------------

// Layers take turns: forward from the first to the last, then backward from the last to the first.
// LayerReads says what a pass reads in one turn.
struct LayerReads {
  ShardPlan::Run now;   // in this turn
  ShardPlan::Run next;  // in the next turn that reads any; fetched meanwhile
};
// By turn.
std::vector<LayerReads> PlanTrainingReads(const JobPlan& plan, const Network& network);
std::vector<LayerReads> PlanEvaluationReads(const JobPlan& plan, const Network& network);
// The turn of a layer's backward. The turn of its forward is the layer's number.
inline size_t BackwardTurn(const Network& network, uint32_t layer) {
  return 2 * size_t{network.layer_count()} - 1 - layer;
}

// Backward through these layers, from `last` down to `first`, makes the shards of `ready` final:
// they begin in these layers and may reach into later ones.
struct BackwardPart {
  uint32_t first = 0;
  uint32_t last = 0;
  ShardPlan::Run ready;
};
// In the order of backward. Every layer is in one part.
std::vector<BackwardPart> PlanBackwardParts(const JobPlan& plan, const Network& network);

// The shards that hold the metric tensor alone: final as soon as the batch is scored.
ShardPlan::Run MetricShards(const JobPlan& plan);

// ---- its parameters -----------------------------------------------------------------------------

// PassControl answers a pass for the call that wants it. Threads: called on the computing thread;
// IsInterrupted and IsAbandoned may be called with the parameter store locked.
class PassControl {
 public:
  virtual ~PassControl() = default;
  // Whether a forward that waits for parameters has to give up. The work may be run again.
  virtual bool IsInterrupted() const = 0;
  // Whether the work is not wanted any more. `is_partly_out`: some shards were added to the sum
  // and may count.
  virtual bool IsAbandoned(bool is_partly_out) const = 0;
  // With layer residency: these shards are not here and have to be pulled.
  virtual void FetchParameters(const std::vector<ShardId>& shards) = 0;
};

// Threads: one computing thread. Owns: the hold on the version.
class PassParameters {
 public:
  // `reads`: by turn, from PlanTrainingReads. All references outlive it.
  PassParameters(ParameterStore::Hold hold, bool is_layered, std::span<const LayerReads> reads,
                 PassControl& control, StepTimeline& timeline)
      : hold_(std::move(hold)),
        is_layered_(is_layered),
        reads_(reads),
        control_(control),
        timeline_(timeline) {}

  // As ParameterStore::Hold.
  uint64_t serial() const { return hold_.serial(); }
  const float* values() const { return hold_.values(); }
  const float* kept_shard(ShardId shard) const { return hold_.kept_shard(shard); }
  std::vector<float> ReadShard(ShardId shard) const { return hold_.ReadShard(shard); }
  ShardPlan::Run ReadsAt(size_t turn) const { return reads_[turn].now; }

  // Blocks until the shards that `turn` reads are here. kInterrupted: the wait was called off or
  // the work was abandoned.
  Status Await(size_t turn);
  // Blocks until this shard is here.  REQUIRES: before the first turn.
  Status AwaitShard(ShardId shard);
  // kInterrupted if the work was abandoned.
  Status CheckWanted() const;
  // Shards of the gradient are in the sum from now on. They cannot be made again, so a wait of
  // backward ends only if the rest is not wanted either.
  void SetPartlyOut() { is_partly_out_ = true; }
  // How long this pass has waited so far.
  std::chrono::nanoseconds waited() const { return waited_; }

 private:
  Status Advance(ShardPlan::Run now, ShardPlan::Run next, const std::function<bool()>& interrupted);

  ParameterStore::Hold hold_;
  const bool is_layered_;
  const std::span<const LayerReads> reads_;
  PassControl& control_;
  StepTimeline& timeline_;
  bool is_partly_out_ = false;
  std::chrono::nanoseconds waited_{0};
};

}  // namespace pando
