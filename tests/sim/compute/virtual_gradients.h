// VirtualGradients makes the gradients of a simulated worker: their sums, hashes and payloads. One
// gradient may come out wrong (P41). Used by VirtualComputer.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/buffer_pool.h"
#include "plan/job_plan.h"
#include "train/compute_port.h"
#include "train/error_feedback.h"

namespace pando::sim {

class VirtualGradients {
 public:
  using FlipsBit = std::function<bool(Step, MicroBatch)>;
  using NodeSum = std::pair<TreeNode, std::shared_ptr<FloatBuffer>>;
  // `flips_bit`: whether this gradient comes out wrong, this time.
  VirtualGradients(const JobPlan& plan, BufferSource buffers, FlipsBit flips_bit)
      : plan_(plan), buffers_(std::move(buffers)), flips_bit_(std::move(flips_bit)) {}

  // Gradients that are made until EndStep may be wrong.
  void BeginStep(Step step, const std::vector<MicroBatch>& micro_batches);
  void EndStep() { flipped_.reset(); }
  // The sums to push for these micro-batches, from the parameters with this digest.
  std::vector<NodeSum> SumNodes(Step step, const std::vector<MicroBatch>& micro_batches,
                                uint64_t digest) const;
  GradientHashed Hash(Step step, MicroBatch m, uint64_t digest) const;
  // Returns the hashes of the verified micro-batches.
  std::vector<GradientHashed> HashVerified(Step step, const std::vector<MicroBatch>& micro_batches,
                                           uint64_t digest) const;
  // The shard's part of the sum as it travels, in memory that peers of this host can read.
  Blob Encode(Step step, const NodeSum& sum, ShardId shard);
  void Forget() { feedback_.Forget(); }

 private:
  std::vector<float> Make(Step step, MicroBatch m, uint64_t digest) const;
  Blob Share(const Blob& payload) const;

  const JobPlan& plan_;
  const BufferSource buffers_;
  const FlipsBit flips_bit_;
  std::optional<std::pair<Step, MicroBatch>> flipped_;
  ErrorFeedback feedback_{plan_};
};

}  // namespace pando::sim
