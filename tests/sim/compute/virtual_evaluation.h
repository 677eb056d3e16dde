// VirtualEvaluation evaluates a slice on a simulated worker once its version is there: whole, or
// shard by shard with layer residency. Used by VirtualComputer.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "plan/job_plan.h"
#include "tests/sim/compute/call_tickets.h"
#include "tests/sim/compute/parameter_copy.h"
#include "tests/sim/world.h"

namespace pando::sim {

class VirtualEvaluation {
 public:
  // `time`: that one evaluation takes.
  VirtualEvaluation(World& world, const JobPlan& plan, CallTickets& tickets,
                    std::function<Micros()> time)
      : world_(world), plan_(plan), tickets_(tickets), time_(std::move(time)) {}

  void EvaluateSlice(const Evaluate& request);
  void ParametersArrived(ShardId shard, Version version, std::vector<float> floats);
  void ParametersGone();
  void Forget();

 private:
  bool is_layered() const { return plan_.job.parameter_residency == ParameterResidency::kLayer; }
  void SetVersion(Version version);
  void TryWhole();
  void TryLayered();
  void ReportResult(uint64_t ticket, uint64_t digest);

  World& world_;
  const JobPlan& plan_;
  CallTickets& tickets_;
  const std::function<Micros()> time_;
  std::optional<Evaluate> request_;
  Version version_;  // of copy_
  ParameterCopy copy_;
  std::optional<LayerPass> pass_;  // with layer residency
  uint64_t pass_ticket_ = 0;
  uint64_t pass_digest_ = 0;
};

}  // namespace pando::sim
