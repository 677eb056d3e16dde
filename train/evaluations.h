// Evaluations starts the evaluation of test slices once their parameters are here. Used by the
// trainer; its threads compute the chunks.
// Threads: the protocol thread; parameters() any. Owns: the parameters that are evaluated.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "train/compute_call.h"
#include "train/task_queue.h"

namespace pando {

class Evaluations {
 public:
  // All references outlive it.
  Evaluations(const ShardPlan& shards, const ParameterStore::Options& options,
              HeldBytes& held_bytes, const ComputeTickets& tickets, TaskQueue& queue,
              const ComputeSink& sink);

  // These three as in ComputePort.
  void EvaluateSlice(const Evaluate& request);
  void ParametersArrived(ShardId shard, Version version, const Blob& payload);
  void ParametersGone(Version version);
  // Drops everything, also what threads are at work on.
  void Forget();

  ParameterStore& parameters() { return parameters_; }

 private:
  void StartWhole();
  void Start(const Evaluate& request);

  ParameterStore parameters_;
  const ComputeTickets& tickets_;
  TaskQueue& queue_;
  const ComputeSink& sink_;
  std::vector<Evaluate> unstarted_;  // of one version
  std::vector<std::weak_ptr<SliceEvaluation>> running_;
  uint64_t started_count_ = 0;
};

}  // namespace pando
