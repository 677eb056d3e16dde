// VirtualComputer is the computing side of a simulated worker: one processor in virtual time, work
// in the order it was given, a forward that waits for the shards it reads. With layer residency
// forward, backward and evaluation read them one by one (virtual_layers.cc).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/float_buffer.h"
#include "plan/job_plan.h"
#include "tests/sim/layer_pass.h"
#include "tests/sim/world.h"
#include "train/compute_port.h"
#include "train/error_feedback.h"

namespace pando::sim {

class VirtualComputer : public ComputePort {
 public:
  struct Hooks {
    std::function<void(std::function<void()>)> post;   // runs it on the worker's loop
    std::function<void(const ComputeEvent&)> deliver;  // called there
    std::function<bool(Step, MicroBatch)> flips_bit;   // whether this gradient comes out wrong
    BufferSource buffers;                              // of gradients
  };
  VirtualComputer(World& world, const JobPlan& plan, Micros micro_batch_time, Hooks hooks)
      : world_(world), plan_(plan), micro_batch_time_(micro_batch_time), hooks_(std::move(hooks)) {}

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
  using Copy = std::map<ShardId, std::vector<float>>;
  enum class Kind : uint8_t { kStep, kVerification, kEvaluation };
  struct Call {
    Step step;
    std::vector<MicroBatch> micro_batches;
    uint64_t ticket = 0;
    Kind kind = Kind::kStep;
  };
  struct Issued {
    Step step;
    Kind kind = Kind::kStep;
  };
  enum class Which : uint8_t { kMore, kLast };  // among its call's events
  uint64_t Issue(Step step, Kind kind);
  // Reaches the session unless the call has been dropped when its turn comes.
  void Emit(uint64_t ticket, Which place, ComputeEvent event);
  void StartNext();
  bool DropIfSuperseded(const Call& call);
  void Finish(const Call& call, uint64_t digest);
  void FinishVerification(const Call& call, uint64_t digest);
  std::vector<float> MakeGradient(uint64_t digest, Step step, MicroBatch m) const;
  uint64_t HashGradient(uint64_t digest, Step step, MicroBatch m) const;
  Blob Travelling(const Blob& payload) const;
  Blob Encoded(Step step, TreeNode node, ShardId shard, const FloatBuffer& sum);
  void TryEvaluate();
  void TellResult(uint64_t ticket, uint64_t digest);
  std::optional<uint64_t> DigestIfWhole(const Copy& copy, bool needs_all) const;
  Micros ComputingTime(size_t micro_batches) const;
  // Layer residency.
  struct Backward {
    LayerPass pass;
    Call call;
    uint64_t digest = 0;
    std::vector<std::pair<TreeNode, std::shared_ptr<FloatBuffer>>> sums;
    std::vector<GradientHashed> hashes;
    bool is_resting = false;  // between two shards
  };
  bool is_layered() const { return plan_.job.parameter_residency == ParameterResidency::kLayer; }
  bool IsGone(const Call& call) const { return gone_ && VersionReadBy(call.step) <= *gone_; }
  LayerPass MakePass(uint64_t ticket, ParameterUse use, Version version,
                     std::vector<ShardId> order);
  void StartNextLayered();
  void FinishLayered(const Call& call, uint64_t digest);
  void GoBackward();
  void EmitShard(const Backward& backward, ShardId shard);
  void EndBackward();
  void DropBackward();
  void TellOfNone(const Call& call);
  void TryEvaluateLayered();
  std::vector<GradientHashed> HashGradients(const Call& call, uint64_t digest) const;

  World& world_;
  const JobPlan& plan_;
  Micros micro_batch_time_;
  Hooks hooks_;
  int64_t slowness_ = 1;
  Micros slow_until_{0};
  std::map<Version, Copy> parameters_;  // the two newest versions
  std::deque<Call> calls_;
  bool is_running_ = false;
  uint64_t ticket_ = 0;
  std::map<uint64_t, Issued> issued_;  // calls that are neither dropped nor fully reported
  uint64_t hashes_from_ = 0;  // the first call since Forget: earlier hashes are not reported
  std::optional<std::pair<Step, MicroBatch>> flipped_;
  ErrorFeedback feedback_{plan_};
  Version evaluation_version_;
  Copy evaluation_copy_;
  std::optional<Evaluate> evaluation_;
  // Layer residency.
  std::optional<Version> gone_;  // versions up to this one will not come
  uint64_t forward_ticket_ = 0;  // whose forward this is
  std::optional<LayerPass> forward_;
  uint64_t forward_digest_ = 0;
  std::map<ShardId, uint64_t> forward_hashes_;  // of what it has read
  std::optional<Backward> backward_;
  std::optional<LayerPass> evaluation_pass_;
  uint64_t evaluation_digest_ = 0;
  uint64_t evaluation_ticket_ = 0;
};

}  // namespace pando::sim
