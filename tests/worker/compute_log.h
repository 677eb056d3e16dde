// Shared by the tests of the session and of its parts: the members of a view, and a computing side
// that only remembers its calls.
#pragma once

#include <vector>

#include "common/clock.h"
#include "proto/messages.h"
#include "train/compute_port.h"

namespace pando {

inline constexpr PeerId kScheduler{kSchedulerNode, Incarnation(10), 0};
inline constexpr PeerId kLaneA{NodeId(2), Incarnation(22), 0};  // of shards 0, 2, ...
inline constexpr PeerId kLaneB{NodeId(3), Incarnation(33), 1};  // of shards 1, 3, ...
inline constexpr PeerId kNewLane{NodeId(8), Incarnation(88), 0};
inline constexpr PeerId kNobody{};
inline constexpr Micros kMs = std::chrono::milliseconds(1);
inline constexpr Micros kStepTime = 50 * kMs;
inline constexpr NodeId kWorkers[] = {NodeId(4), NodeId(5), NodeId(6)};  // by rank
// The first worker's companions on its host, and their nodes of the tree.
inline constexpr PeerId kGiver{kWorkers[1], Incarnation(101), 0};  // of micro-batches 4 and 5
inline constexpr PeerId kOther{kWorkers[2], Incarnation(102), 0};  // 6 and 7
inline constexpr TreeNode kOfGiver{6};
inline constexpr TreeNode kOfOther{7};

class ComputeLog : public ComputePort {
 public:
  struct Call {
    Step step;
    std::vector<MicroBatch> micro_batches;
    bool operator==(const Call&) const = default;
  };
  void Compute(Step step, std::vector<MicroBatch> m) override { calls.push_back({step, m}); }
  void Abandon(Step from) override { abandoned.push_back(from); }
  void Verify(Step step, MicroBatch m) override { verified.push_back({step, {m}}); }
  void Forget() override { ++forget_count; }
  void ParametersArrived(ShardId, Version version, const Blob&) override {
    parameters.push_back(version);
  }
  void ParametersGone(ParameterUse use, Version version) override {
    (use == ParameterUse::kTraining ? gone : evaluation_gone).push_back(version);
  }
  void EvaluateSlice(const Evaluate& request) override { slices.push_back(request.slice); }
  void EvaluationParametersArrived(ShardId, Version version, const Blob&) override {
    evaluation_parameters.push_back(version);
  }

  std::vector<Call> calls;
  std::vector<Call> verified;
  std::vector<Step> abandoned;
  std::vector<Version> parameters;
  std::vector<Version> gone;
  std::vector<uint32_t> slices;
  std::vector<Version> evaluation_parameters;
  std::vector<Version> evaluation_gone;
  int forget_count = 0;
};

}  // namespace pando
