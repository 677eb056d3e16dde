// LayeredTraining: training with layer residency on a simulated worker. A forward and a backward
// take the shards one by one; it knows what happens to them when a version is gone. Used by
// VirtualComputer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "tests/sim/compute/call_tickets.h"
#include "tests/sim/compute/virtual_gradients.h"
#include "tests/sim/world.h"

namespace pando::sim {

class LayeredTraining {
 public:
  struct Parts {  // all outlive it
    World& world;
    const JobPlan& plan;
    CallTickets& tickets;
    VirtualGradients& gradients;
  };
  // `shard_time`: between two shards of a backward. `on_done`: a backward has ended.
  LayeredTraining(const Parts& parts, Micros shard_time, std::function<void()> on_done)
      : parts_(parts), shard_time_(shard_time), on_done_(std::move(on_done)) {}

  void Arrived(ShardId shard, Version version, const std::vector<float>& floats);
  // Versions up to this one will not come.
  void SetGone(Version version) { gone_ = std::max(gone_.value_or(version), version); }
  bool IsGone(const Call& call) const {
    return gone_ && parts_.plan.steps.VersionReadBy(call.step) <= *gone_;
  }
  void Forget();

  // Drops the forward if it is another call's.
  void KeepForward(uint64_t ticket);
  // Begins or continues the call's forward. The digest of all that it read, once it has.
  std::optional<uint64_t> GoForward(const Call& call);

  // Computes the call's gradients. Its backward runs from StartBackward on.
  void PrepareBackward(const Call& call, uint64_t digest);
  void StartBackward();
  void DropBackward() { backward_.reset(); }
  const Call* backward_call() const { return backward_ ? &backward_->call : nullptr; }
  // If the micro-batch is hashed, it is hashed to its end (P41).
  bool has_hashes() const { return backward_ && !backward_->hashes.empty(); }

 private:
  struct Backward {
    LayerPass pass;
    Call call;
    std::vector<VirtualGradients::NodeSum> sums;
    std::vector<GradientHashed> hashes;
    bool is_resting = false;  // between two shards
  };
  void GoBackward();
  void EmitShard(ShardId shard);
  void EndBackward();

  const Parts parts_;
  const Micros shard_time_;
  const std::function<void()> on_done_;
  std::optional<Version> gone_;
  std::optional<LayerPass> forward_;
  uint64_t forward_ticket_ = 0;
  uint64_t forward_digest_ = 0;
  std::map<ShardId, uint64_t> forward_hashes_;  // of what it has read
  std::optional<Backward> backward_;
};

}  // namespace pando::sim
