// VirtualComputer is the computing side of a simulated worker: one processor in virtual time, work
// in the order it was given, a forward that waits for the shards it reads.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "common/job_plan.h"
#include "tests/sim/world.h"
#include "worker/compute_port.h"

namespace pando::sim {

class VirtualComputer : public ComputePort {
 public:
  using Emit = std::function<void(ComputeEvent)>;
  VirtualComputer(World& world, const JobPlan& plan, Micros micro_batch_time, Emit emit)
      : world_(world), plan_(plan), micro_batch_time_(micro_batch_time), emit_(std::move(emit)) {}

  void Compute(Step step, std::vector<MicroBatch> micro_batches) override;
  void Abandon(Step from) override;
  void Verify(Step step, MicroBatch micro_batch) override;
  void Forget() override;
  void ParametersArrived(ShardId shard, Version version, const Blob& payload) override;
  void EvaluateSlice(const Evaluate& request) override;
  void EvaluationParametersArrived(ShardId shard, Version version, const Blob& payload) override;

 private:
  using Copy = std::map<ShardId, std::vector<float>>;
  struct Call {
    Step step;
    std::vector<MicroBatch> micro_batches;
    uint64_t ticket = 0;
    bool is_verification = false;  // P41
  };
  void StartNext();
  bool DropIfSuperseded(const Call& call);
  void Finish(const Call& call, uint64_t digest);
  void FinishVerification(const Call& call, uint64_t digest);
  uint64_t HashOf(uint64_t digest, Step step, MicroBatch m) const;
  void TryEvaluate();
  std::optional<uint64_t> DigestIfWhole(const Copy& copy, bool needs_all) const;

  World& world_;
  const JobPlan& plan_;
  Micros micro_batch_time_;
  Emit emit_;
  std::map<Version, Copy> parameters_;  // the two newest versions
  std::deque<Call> calls_;
  bool is_running_ = false;
  uint64_t ticket_ = 0;
  std::map<uint64_t, Step> live_;     // tickets of calls not abandoned
  std::set<uint64_t> verifications_;  // those that are verifications, which are never abandoned
  uint64_t generation_ = 0;           // how often we were told to forget
  Version evaluation_version_;
  Copy evaluation_copy_;
  std::optional<Evaluate> evaluation_;
};

}  // namespace pando::sim
