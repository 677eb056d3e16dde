// HostRelay: one copy of a gradient leaves a host however many workers compute on it (P6a). Of the
// workers of a host one is the relay. The others give it their sums instead of pushing them; it
// adds what belongs together along the tree, pushes that, and hands them the parameters that its
// pushes bring back. Given is not pushed: who gave a gradient keeps it (P11), asks a silent relay
// what it holds, gives again what was lost, and pushes itself where nobody answers. So nothing
// depends on the relay. Used by the session. Threads: none. Invariants I1, I5: sums follow the
// tree.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "common/float_buffer.h"
#include "common/job_plan.h"
#include "proto/host_group.h"
#include "proto/outbox.h"

namespace pando {

class HostRelay {
 public:
  // A relay that brings nothing for so long is asked what it holds, and again after kAskAgain.
  static constexpr Micros kQuiet = std::chrono::milliseconds(100);
  static constexpr Micros kAskAgain = std::chrono::milliseconds(50);
  // One that does not answer either, so long and what it takes to hand over and sum what it is owed
  // for, is given up: asked now and then, and given nothing until it answers.
  static constexpr Micros kPatience = std::chrono::milliseconds(200);
  static constexpr size_t kSlowestBytesPerMicro = 200;  // 200 MB/s: cold memory, shared cores
  static constexpr Micros kAskGivenUp = std::chrono::seconds(1);
  // Of a giver and shard: all nodes of two steps' trees are fewer for each micro-batch.
  static constexpr size_t kGiftsPerMicroBatchMax = 4;

  // `plan` outlives it. `buffers`: of sums, which travel on.
  HostRelay(const JobPlan& plan, BufferSource buffers);

  void Enter(const View& view, const PeerId& self);
  // Of another generation nothing is kept (P21).
  void Forget();
  const HostGroup& group() const { return group_; }

  // ---- who gives -------------------------------------------------------------------------------
  bool Gives(ShardId shard) const;
  bool IsOurRelay(const PeerId& peer) const {
    return group_.has_relay() && !is_relay_ && peer == group_.relay;
  }
  size_t shard_count() const;  // that are summed on the host
  void NoteGiven(Micros now);
  void NoteParams(Micros now);  // by the relay; of one that is given up they are late
  // Returns when the question was first asked, if one was open.
  std::optional<Micros> NoteAnswer(Micros now);
  enum class Due : uint8_t { kNothing, kAsk, kGiveUp };
  // `owed_bytes`: of what the relay was given and has brought no parameters for yet.
  Due TakeDue(Micros now, size_t owed_bytes);
  Micros ask_at() const { return ask_at_; }
  bool is_given_up() const { return is_given_up_; }

  // ---- who is given ----------------------------------------------------------------------------
  struct Gift {
    PeerId giver;
    Step step;
    TreeNode node;
    Blob payload;  // gone once the step's version is there, for which the giver waits still
  };
  bool Sums(ShardId shard) const;
  // False: there are as many as can be.
  bool Keep(ShardId shard, Gift gift);
  const std::vector<Gift>& gifts(ShardId shard) const { return shards_[shard.value()].gifts; }
  // left + right, the gradients of two siblings.
  Blob Sum(ShardId shard, const Blob& left, const Blob& right);
  // One look at what is to be pushed: BeginLook, and for each sum MayLeave: whether it may go, or
  // waits for others of the host, as long as `patience` from the first look at the shard's step on.
  // Nobody is waited for who gave nothing of the step before, nor of this one by the first look.
  void BeginLook() { look_again_at_ = kNever; }
  bool MayLeave(Micros now, ShardId shard, Step step, TreeNode node, Micros patience);
  // When something that waits may go.
  Micros look_again_at() const { return look_again_at_; }
  void OnCommitted(ShardId shard, Version version);
  // Adds what to hand to whom of parameters that have come.
  void TakeReplies(const ParamsItem& item, std::map<PeerId, Params>* replies);

 private:
  struct ShardState {
    std::vector<Gift> gifts;
    Micros leaves_at = kNever;       // without the others' part; kNever: nothing has waited
    std::optional<BufferPool> pool;  // of sums
  };
  bool WaitsForOthers(Step step, TreeNode node);

  const JobPlan& plan_;
  const BufferSource buffers_;
  HostGroup group_;
  bool is_relay_ = false;
  bool is_given_up_ = false;          // the relay
  View view_;                         // where we are the relay
  std::map<NodeId, Step> last_gave_;  // by giver, in this view
  std::optional<Step> nodes_step_;
  std::vector<TreeNode> nodes_;  // of those who give, at that step
  std::vector<ShardState> shards_;
  Micros look_again_at_ = kNever;
  Micros ask_at_ = kNever;
  std::optional<Micros> asked_since_;  // the first question that is not answered
};

}  // namespace pando
