// Replies: what a lane answers to workers (P6, P9, P10). Committed versions and reasons why there
// is none are gathered per worker until Tick, or a little longer. Part of the lane; ShardSteps
// calls it when a push is taken or a version is committed. Threads: none. Owns: the workers that
// wait for a version, and what is not sent yet.
#pragma once

#include <map>
#include <optional>
#include <utility>

#include "proto/view_member.h"
#include "server/early_messages.h"
#include "server/replicas.h"

namespace pando {

class Replies {
 public:
  // All outlive the part.
  Replies(ViewMember& member, Replicas& replicas, EarlyMessages& early, const JobPlan& plan)
      : member_(member), replicas_(replicas), early_(early), plan_(plan) {}

  void OnPull(const Envelope& envelope, const Pull& pull);
  // Shards that are being restored are left out of the answer.
  void OnQuestion(Micros now, const Envelope& envelope, const Question& question);
  // The version that a taken push makes, now or once it is committed.
  void AnswerPush(const PeerId& peer, Shard& shard, const PushItem& item, bool says_pending);
  // Of shards whose primary is another lane: NotPrimary, unless the sender's view is newer than
  // ours. Then the message waits for that view.
  void AnswerNotPrimary(const Envelope& envelope, Push others);
  void AnswerNotPrimary(const Envelope& envelope, Pull others);
  // The shard has a version more to show.
  void ReplyToWaiting(Shard& shard);

  void EnterView();
  void Clear();  // a new generation begins
  void Tick(Micros now);
  Micros NextDeadline() const { return params_held_until_.value_or(kNever); }

 private:
  struct Wanted {
    TreeNode node;  // of the push that asks; of none for a pull
    Version version;
    ParamsForm form;
  };
  struct Waiting {  // P6: at most one reply in flight per (peer, shard, form)
    PeerId peer;
    Version version;
  };
  void Answer(const PeerId& peer, Shard& shard, const Wanted& wanted, bool says_pending);
  template <class M>
  void AnswerItemsNotPrimary(const Envelope& envelope, M others);
  void SendTo(PeerId peer);

  ViewMember& member_;
  Replicas& replicas_;
  EarlyMessages& early_;
  const JobPlan& plan_;
  std::map<ShardId, std::map<std::pair<Incarnation, ParamsForm>, Waiting>> waiting_;
  // Gathered until Tick, or a little longer.
  std::map<PeerId, PushReply> replies_out_;
  std::map<PeerId, Params> params_out_;
  std::optional<Micros> params_held_until_;
};

}  // namespace pando
