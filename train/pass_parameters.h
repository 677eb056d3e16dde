// PassParameters: the parameters that one pass reads, as they arrive. Made by MicroBatchPass for
// each pass; the launchers wait here before each layer.
// Threads: one computing thread. Owns: the hold on the version.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "common/batch.h"
#include "common/status.h"
#include "train/parameter_store.h"
#include "train/pass_plan.h"
#include "train/step_timeline.h"

namespace pando {

// What a pass asks of the call that wants it. Threads: as GradientSink; IsInterrupted and
// IsAbandoned may be called with the parameter store locked.
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
