// SerialServers does the servers' part of a serial run: it sums a step's gradients, makes the next
// version of each shard, and gives it to the trainer. Used by SerialTrainer. The computing thread
// that completes a shard's sum updates the shard, so most updates are made while backward still
// runs.
// Threads: Take any; the rest as SerialTrainer's Run. Owns: the optimizer's state, and versions
// while their encoded form is what the trainer reads.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "common/float_buffer.h"
#include "plan/job_plan.h"
#include "server/aggregator.h"
#include "train/compute_port.h"
#include "train/local_update.h"
#include "train/parameter_store.h"

namespace pando {

class SerialServers {
 public:
  // Called on computing threads with a vector that holds one more shard of version step + 1. The
  // trainer gets the shard afterwards.
  using OnMade = std::function<void(Step step, const FloatBuffer& next)>;
  // `plan` and `parameters`, the trainer's, outlive it.
  SerialServers(const JobPlan& plan, ParameterStore& parameters, OnMade on_made);

  // Makes the first version: from the seed, or from these parameters and states by shard.
  void StartFromSeed();
  void StartFrom(Version version, const FloatBuffer& parameters,
                 std::span<const SharedBuffer> states);
  // A gradient of the trainer: the sum over a step, or where gradients are encoded one leaf of it.
  void Take(const GradientReady& gradient);

  // REQUIRES: the version is whole and one of the newest two.
  std::shared_ptr<const FloatBuffer> Open(Version version) { return *versions().Open(version); }
  // By shard, of the newest version.
  std::vector<FloatBuffer>& states() { return update_.states(); }
  const Schedule& schedule() const { return update_.schedule(); }

 private:
  // P34. Encoded gradients come one by one.
  struct Summed {
    Summed(size_t float_count, const ShardCodec* codec) : leaves(float_count, codec) {}
    std::mutex mutex;  // guards:
    std::optional<Step> step;
    Aggregator leaves;  // of this step
  };
  ParameterStore& versions() { return encoded_from_ ? *encoded_from_ : parameters_; }
  std::optional<Blob> Sum(const GradientReady& leaf);
  void Show(ShardId shard, Version version, const SharedBuffer& values);

  const JobPlan& plan_;
  ParameterStore& parameters_;
  const OnMade on_made_;
  HeldBytes held_bytes_;
  // Where versions are made if the trainer reads their encoded form (P34); otherwise they are made
  // in the trainer's store.
  std::optional<ParameterStore> encoded_from_;
  LocalUpdate update_;
  std::deque<Summed> summed_;  // by shard; empty if gradients are not encoded
};

}  // namespace pando
