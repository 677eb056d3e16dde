// VirtualComputer is the computing side of a simulated worker: one processor in virtual time, work
// in the order it was given, a forward that waits for the shards it reads. With layer residency
// forward, backward and evaluation read them one by one (layered_training.h).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/job_plan.h"
#include "tests/sim/compute/call_tickets.h"
#include "tests/sim/compute/layered_training.h"
#include "tests/sim/compute/parameter_copy.h"
#include "tests/sim/compute/virtual_evaluation.h"
#include "tests/sim/compute/virtual_gradients.h"
#include "tests/sim/world.h"
#include "train/compute_port.h"

namespace pando::sim {

class VirtualComputer : public ComputePort {
 public:
  struct Hooks {
    CallTickets::Post post;                // runs it on the worker's loop
    CallTickets::Deliver deliver;          // called there
    VirtualGradients::FlipsBit flips_bit;  // whether this gradient comes out wrong
    BufferSource buffers;                  // of gradients
  };
  VirtualComputer(World& world, const JobPlan& plan, Micros micro_batch_time, Hooks hooks);

  // Everything takes `factor` times as long until then.
  void SlowDown(int64_t factor, Micros until);

  std::string StateText() const;  // what is queued and held, for a replay

  void Compute(Step step, std::vector<MicroBatch> micro_batches) override;
  void Abandon(Step from) override;
  void Verify(Step step, MicroBatch micro_batch) override;
  void Forget() override;
  void ParametersArrived(ShardId shard, Version version, const Blob& payload) override;
  void ParametersGone(ParameterUse use, Version version) override;
  void EvaluateSlice(const Evaluate& request) override;
  void EvaluationParametersArrived(ShardId shard, Version version, const Blob& payload) override;

 private:
  using Which = CallTickets::Which;
  bool is_layered() const { return plan_.job.parameter_residency == ParameterResidency::kLayer; }
  Micros ComputingTime(size_t micro_batches) const;
  // Between two shards of a backward.
  Micros ShardTime() const { return micro_batch_time_ / (4 * plan_.shards.shard_count()); }
  void StartNext();
  bool DropIfSuperseded(const Call& call);
  void Finish(const Call& call, uint64_t digest);
  void FinishVerification(const Call& call, uint64_t digest);
  void StartNextLayered();
  void FinishLayered(const Call& call, uint64_t digest);
  void DropBackward();
  void ReportNone(const Call& call);

  World& world_;
  const JobPlan& plan_;
  const Micros micro_batch_time_;
  int64_t slowness_ = 1;
  Micros slow_until_{0};
  CallTickets tickets_;
  VirtualGradients gradients_;
  VirtualEvaluation evaluation_;
  LayeredTraining layered_;
  std::map<Version, ParameterCopy> parameters_;  // the two newest versions
  std::deque<Call> calls_;
  bool is_running_ = false;
};

}  // namespace pando::sim
