// Sums of a host's workers (P6a): one copy of a gradient leaves a host however many workers compute
// on it. One of them is the relay. Every session has both parts, and uses one. Threads: none.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/buffer_pool.h"
#include "proto/assignment.h"
#include "worker/lane_requests.h"
#include "worker/worker_core.h"

namespace pando {

// A worker that gives its gradients to its host's relay instead of pushing them. The giver stays
// responsible for a gradient until the lane commits it (P11): it asks a silent relay what it holds,
// gives again what was lost, and pushes by itself if the relay does not answer. So nothing depends
// on the relay.
class HostGiver : SessionPart {
 public:
  // A relay that brings nothing for so long is asked what it holds, and again after kAskAgain.
  static constexpr Micros kQuiet = std::chrono::milliseconds(100);
  static constexpr Micros kAskAgain = std::chrono::milliseconds(50);
  // A relay that does not answer for so long, and the time to hand over and sum what it owes, is
  // given up: it is asked now and then, and gets nothing until it answers.
  static constexpr Micros kPatience = std::chrono::milliseconds(200);
  static constexpr size_t kSlowestBytesPerMicro = 200;  // 200 MB/s: cold memory, shared cores
  static constexpr Micros kAskGivenUp = std::chrono::seconds(1);

  // `requests` outlives it.
  HostGiver(const SessionPart& part, const LaneRequests& requests)
      : SessionPart(part), requests_(requests) {}

  void EnterView(const HostGroup& group);
  // Whether gradients of this shard go to the relay.
  bool Gives(ShardId shard) const {
    return has_relay_ && !has_given_up_ && group_.sums[shard.value()];
  }
  bool IsOurRelay(const PeerId& peer) const { return has_relay_ && peer == group_.relay; }
  const PeerId& relay() const { return group_.relay; }
  // The number of shards that are summed on the host.
  size_t shard_count() const { return static_cast<size_t>(std::ranges::count(group_.sums, true)); }
  bool has_given_up() const { return has_given_up_; }

  void OnGiven(Micros now) {
    if (ask_at_ == kNever) ask_at_ = now + kQuiet;
  }
  // The relay has sent parameters. Those of one that is given up are late.
  void OnParams(Micros now) {
    if (has_given_up_) return;
    asked_since_.reset();
    ask_at_ = now + kQuiet;
  }
  // True if the answer was waited for. What it lacks is given again, unless it may have been under
  // way when the relay said so; versions that it knows of are pulled.
  bool OnAnswer(Micros now, const Answer& answer);
  void Tick(Micros now);
  Micros NextDeadline() const { return ask_at_; }

 private:
  void GiveUp(Micros now);

  const LaneRequests& requests_;
  HostGroup group_;
  bool has_relay_ = false;  // another worker than this one
  bool has_given_up_ = false;
  Micros ask_at_ = kNever;
  std::optional<Micros> asked_since_;  // the first question that is not answered
};

// The relay. The host's other workers give it their sums; it adds what belongs together along the
// tree, pushes that, and hands them the parameters that its pushes bring back. Invariants I1, I5.
class HostRelay : SessionPart {
 public:
  // The limit for a giver and shard: the nodes of two steps' trees are fewer for a micro-batch.
  static constexpr size_t kGiftsPerMicroBatchMax = 4;
  using Replies = std::map<PeerId, Params>;

  // `buffers`: of sums, which travel on. All else outlives it.
  HostRelay(const SessionPart& part, BufferSource buffers)
      : SessionPart(part), buffers_(std::move(buffers)), shards_(plan_.shards.shard_count()) {}

  void EnterView(const HostGroup& group);
  // Drops all gifts: nothing of another generation is kept (P21).
  void Forget() {
    for (ShardState& shard : shards_) shard.gifts.clear();
  }
  // Whether this worker sums gradients of this shard for its host.
  bool Sums(ShardId shard) const { return is_relay_ && group_.sums[shard.value()]; }

  // From another worker of our host. That it could be sent proves that the version which it was
  // made with is committed everywhere (P4). Late ones are not answered; their giver asks. False if
  // this worker takes none.
  bool OnPush(const PeerId& from, const Push& push);
  // A lane would say what it holds; the relay says what it holds of what the asker gave.
  void OnQuestion(const PeerId& from, const Question& question);
  void OnCommitted(ShardId shard, Version version);
  // Adds what to hand to the givers of parameters that have come.
  void OnParams(const ParamsItem& item, Replies* replies);
  // Work of ours was abandoned, and with it sums that others had a part in.
  void RestoreGifts();
  // Adds a gradient of ours to those that wait for their siblings.
  void Add(ShardId shard, UnrepliedGradient gradient);

  // One look at what is to be pushed: BeginLook, and for each sum MayLeave: whether it may go, or
  // waits for others of the host, until `patience` after the first look at the shard's step. A
  // worker is not waited for if it gave nothing of the step before, nor of this one by the first
  // look.
  void BeginLook() { look_again_at_ = kNever; }
  bool MayLeave(Micros now, ShardId shard, const UnrepliedGradient& sum, Micros patience);
  // When something that waits may go.
  Micros NextDeadline() const { return look_again_at_; }

 private:
  struct Gift {
    PeerId giver;
    Step step;
    TreeNode node;
    Blob payload;  // gone once the step's version is there, for which the giver waits still
  };
  struct ShardState {
    std::vector<Gift> gifts;
    Micros leaves_at = kNever;       // without the others' part; kNever: nothing has waited
    std::optional<BufferPool> pool;  // of sums
  };
  bool IsSound(const PushItem& item) const;
  bool Keep(ShardId shard, Gift gift);
  Blob Sum(ShardId shard, const Blob& left, const Blob& right);
  bool WaitsForOthers(Step step, TreeNode node);

  const BufferSource buffers_;
  HostGroup group_;
  bool is_relay_ = false;
  View view_;                         // where we are the relay
  std::map<NodeId, Step> last_gave_;  // by giver, in this view
  std::optional<Step> nodes_step_;
  std::vector<TreeNode> nodes_;  // of the givers and ours, at that step
  std::vector<ShardState> shards_;
  Micros look_again_at_ = kNever;
};

}  // namespace pando
