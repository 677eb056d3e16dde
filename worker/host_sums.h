// Sums of a host's workers (P6a): one copy of a gradient leaves a host, however many workers it
// has. One of them is the relay, the others are givers. Every session has both parts, and uses one.
// Threads: none.
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

// HostGiver gives a worker's gradients to its host's relay instead of pushing them. The giver stays
// responsible for a gradient until the lane commits it (P11): it asks a silent relay what it holds,
// gives lost gradients again, and pushes by itself if the relay does not answer. So nothing depends
// on the relay.
class HostGiver : SessionPart {
 public:
  // A relay that sends nothing for so long is asked what it holds, and again after kAskAgain.
  static constexpr Micros kQuiet = std::chrono::milliseconds(100);
  static constexpr Micros kAskAgain = std::chrono::milliseconds(50);
  // A relay that does not answer for this time, plus the time to receive and sum what it owes, is
  // given up. It is then asked every kAskGivenUp, and gets nothing until it answers.
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
  // How many shards are summed on the host.
  size_t shard_count() const { return static_cast<size_t>(std::ranges::count(group_.sums, true)); }
  bool has_given_up() const { return has_given_up_; }

  void OnGiven(Micros now) {
    if (ask_at_ == kNever) ask_at_ = now + kQuiet;
  }
  // The relay has sent parameters. If it is given up, they are late and change nothing.
  void OnParams(Micros now) {
    if (has_given_up_) return;
    asked_since_.reset();
    ask_at_ = now + kQuiet;
  }
  // True if the giver waited for the answer. Gradients that the relay lacks are given again, unless
  // they may have been on their way when it answered. Versions that it names are pulled.
  bool OnAnswer(Micros now, const Answer& answer);
  void Tick(Micros now);
  Micros NextDeadline() const { return ask_at_; }

 private:
  void GiveUp(Micros now);

  const LaneRequests& requests_;
  HostGroup group_;
  bool has_relay_ = false;  // it is another worker
  bool has_given_up_ = false;
  Micros ask_at_ = kNever;
  std::optional<Micros> asked_since_;  // the first question that is not answered
};

// HostRelay is the relay's part. The host's other workers give it their sums. It adds siblings
// along the tree, pushes the result, and sends them the parameters that its pushes bring back.
// Invariants I1, I5.
class HostRelay : SessionPart {
 public:
  // Gifts of one giver for one shard. All nodes of two steps' trees are fewer per micro-batch.
  static constexpr size_t kGiftsPerMicroBatchMax = 4;
  using Replies = std::map<PeerId, Params>;

  // `buffers` make the sums, which are sent on. The references outlive it.
  HostRelay(const SessionPart& part, BufferSource buffers)
      : SessionPart(part), buffers_(std::move(buffers)), shards_(plan_.shards.shard_count()) {}

  void EnterView(const HostGroup& group);
  // Gifts of an earlier generation are dropped (P21).
  void Forget() {
    for (ShardState& shard : shards_) shard.gifts.clear();
  }
  // Whether this worker sums gradients of this shard for its host.
  bool Sums(ShardId shard) const { return is_relay_ && group_.sums[shard.value()]; }

  // A push of another worker of our host. It proves that the version which its gradients were made
  // with is committed everywhere (P4). A late push is not answered; its giver asks. False if this
  // worker takes no pushes.
  bool OnPush(const PeerId& from, const Push& push);
  // Answers as a lane does, but names only the sums that the asker gave.
  void OnQuestion(const PeerId& from, const Question& question);
  void OnCommitted(ShardId shard, Version version);
  // Adds the parameters that have arrived to the replies for their givers.
  void OnParams(const ParamsItem& item, Replies* replies);
  // Work of ours was abandoned, and with it sums that contain the gifts of others.
  void RestoreGifts();
  // Adds a gradient of ours to those that wait for their siblings.
  void Add(ShardId shard, UnrepliedGradient gradient);

  // When the sum may be pushed: now, or later, because it waits for the host's other workers. It
  // waits until `patience` after the first call for the shard's step. The relay does not wait for a
  // worker that gave nothing for the step before, nor, by the first call, for this one.
  Micros LeavesAt(Micros now, ShardId shard, const UnrepliedGradient& sum, Micros patience);

 private:
  struct Gift {
    PeerId giver;
    Step step;
    TreeNode node;
    Blob payload;  // empty once the step is committed; the giver still waits for the version
  };
  struct ShardState {
    std::vector<Gift> gifts;
    Micros leaves_at = kNever;       // even without the others' part; kNever: nothing has waited
    std::optional<BufferPool> pool;  // of sums
  };
  bool IsSound(const PushItem& item) const;
  bool Keep(ShardId shard, Gift gift);
  Blob Sum(ShardId shard, const Blob& left, const Blob& right);
  bool WaitsForOthers(Step step, TreeNode node);

  const BufferSource buffers_;
  HostGroup group_;
  bool is_relay_ = false;
  View view_;                         // empty unless we are the relay
  std::map<NodeId, Step> last_gave_;  // by giver, in this view
  std::optional<Step> nodes_step_;
  std::vector<TreeNode> nodes_;  // of the givers and ours, at that step
  std::vector<ShardState> shards_;
};

}  // namespace pando
