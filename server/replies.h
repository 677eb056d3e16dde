// Replies sends a lane's answers to workers (P6, P9, P10). It gathers committed versions, and
// reasons why there is none, per worker until Tick or a little longer. It is a part of the lane;
// ShardSteps calls it when a push is taken or a version is committed. Threads: none. Owns: the
// workers that wait for a version, and unsent replies.
#pragma once

#include <map>
#include <optional>
#include <utility>

#include "server/early_messages.h"
#include "server/lane_part.h"

namespace pando {

class Replies : LanePart {
 public:
  // `early` outlives it.
  Replies(const LanePart& part, EarlyMessages& early) : LanePart(part), early_(early) {}

  void OnPull(const Envelope& envelope, const Pull& pull);
  // Answers a question, except for shards that are being restored.
  void OnQuestion(Micros now, const Envelope& envelope, const Question& question);
  // Answers a push with the version that it helps to make, now or once that is committed.
  void AnswerPush(const PeerId& peer, Shard& shard, const PushItem& item, bool says_pending) {
    Answer(peer, shard, {item.node, VersionMadeBy(item.step), plan_.training_form()}, says_pending);
  }
  // Answers NotPrimary for shards whose primary is another lane. If the sender's view is newer, the
  // message waits for that view instead.
  template <class M>  // Push or Pull
  void AnswerNotPrimary(const Envelope& envelope, M others);
  // Sends the newly committed version to the workers that wait for it.
  void ReplyToWaiting(Shard& shard);

  void EnterView();
  // A new generation begins.
  void Clear() {
    waiting_.clear();
    replies_out_.clear();
    params_out_.clear();
  }
  void Tick(Micros now);
  Micros NextDeadline() const { return params_held_until_.value_or(kNever); }

 private:
  struct Wanted {
    TreeNode node;  // the push's node; 0 for a pull
    Version version;
    ParamsForm form;
  };
  // P6. A lane remembers staleness + 1 requests for each shard, peer and form. A newer one replaces
  // the oldest.
  struct WaitingKey {
    Incarnation peer;
    ParamsForm form;
    uint64_t turn;  // of the version
    auto operator<=>(const WaitingKey&) const = default;
  };
  struct Waiting {
    PeerId peer;
    Version version;
  };
  AnswerItem AnswerFor(const Shard& shard) const;
  void Answer(const PeerId& peer, Shard& shard, const Wanted& wanted, bool says_pending);
  bool ShowToScheduler(const PeerId& peer, const PullItem& item);
  void SendTo(PeerId peer);

  EarlyMessages& early_;
  size_t primary_bytes_ = 0;  // of the parameters of which the lane is primary
  std::map<ShardId, std::map<WaitingKey, Waiting>> waiting_;
  // Gathered until Tick, or a little longer.
  std::map<PeerId, PushReply> replies_out_;
  std::map<PeerId, Params> params_out_;
  std::optional<Micros> params_held_until_;
};

}  // namespace pando
