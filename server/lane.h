// Lane is the server's protocol core: one thread's worth of shards, nothing shared with other
// lanes. It routes messages to its shards, gathers what they answer into few messages (P6), asks
// the scheduler for scalars and reports progress. Run by net/event_loop, and by the simulator.
//
// clang-format off
//   message            | answer
//   -------------------+--------------------------------------------------------------------------
//   Push               | Params once committed; Pending for a duplicate before; Behind; NotPrimary
//   Pull               | Params, Pending (Params then follows unasked), Behind, NotPrimary
//   Question           | Answer, with the question's view; a question of another view: none, but
//                      | our view if it is newer
//   ViewUpdate         | ViewAck; a newer view replaces ours
//   Scalars            | none; shards that waited for them advance
//   ProgressAck        | none; rows below it are forgotten
//   ReleasePin         | PinReleased
//   Stop               | Bye; finished() from then on
//   Refused            | none; finished() from then on
// clang-format on
//
// Threads: none. Owns: its shards. Invariants I3, I4, I6.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proto/core.h"
#include "proto/view_member.h"
#include "server/shard.h"

namespace pando {

class Lane : public ProtocolCore {
 public:
  struct Options {
    ViewMember::Identity identity;
    std::string kind;  // of the Ready that lane 0 sends for its process
  };
  // `plan` and `outbox` outlive the lane.
  Lane(const Options& options, const JobPlan& plan, Outbox& outbox);

  void OnMessage(Micros now, const Envelope& envelope) override;
  void Tick(Micros now) override;
  Micros NextDeadline() const override;

  bool finished() const { return stop_.has_value(); }
  // How the scheduler ended the job.  REQUIRES: finished().
  const Stop& stop() const { return *stop_; }
  bool has_view() const { return member_.has_view(); }
  // Every shard of this lane has committed it; the final version if it has no shards.
  Version committed() const;
  const std::map<ShardId, Shard>& shards() const { return shards_; }

 private:
  struct Waiting {  // P6: at most one reply in flight per (peer, shard)
    PeerId peer;
    Version version;
  };
  void OnMessageOf(Micros now, const PeerId& from, const ViewUpdate& update);
  void OnMessageOf(Micros now, const PeerId& from, const Push& push);
  void OnMessageOf(Micros now, const PeerId& from, const Pull& pull);
  void OnMessageOf(Micros now, const PeerId& from, const Question& question);
  void OnMessageOf(Micros now, const PeerId& from, const Scalars& scalars);
  void OnMessageOf(Micros now, const PeerId& from, const ProgressAck& ack);
  void OnMessageOf(Micros now, const PeerId& from, const ReleasePin& release);
  void OnMessageOf(Micros now, const PeerId& from, const Stop& stop);
  void OnMessageOf(Micros now, const PeerId& from, const Refused& refused);
  template <class Other>
  void OnMessageOf(Micros, const PeerId&, const Other&) {}  // not for a lane

  void AnswerFor(const PeerId& peer, const Shard& shard, Version wanted, TreeNode node,
                 bool says_pending);
  void TryAdvance(Shard& shard);
  void NoteMetrics(const Shard& shard);
  void ReplyToWaiting(const Shard& shard);
  void FlushReplies(Micros now);
  bool HasReplyToHold() const;
  void AskForScalars(Micros now);
  void ReportProgress(Micros now);
  const StepScalars* FindScalars(Step step) const;

  const std::string kind_;
  const JobPlan& plan_;
  ViewMember member_;
  Optimizer optimizer_;
  std::map<ShardId, Shard> shards_;  // those whose primary this lane is
  std::map<ShardId, std::map<Incarnation, Waiting>> waiting_;
  std::map<PeerId, Params> params_out_;      // gathered until Tick, or a little longer
  std::optional<Micros> held_until_;         // when params_out_ goes at the latest
  std::map<PeerId, PushReply> replies_out_;  // gathered until Tick
  std::map<uint64_t, std::vector<StepScalars>> scalar_blocks_;  // by index of block; at most two
  Micros ask_scalars_at_{0};
  std::vector<StepMetrics> rows_;  // not yet acknowledged
  Version reported_;               // committed version last acknowledged
  Version sent_;                   // last sent
  Micros report_at_{0};
  Micros ready_at_{0};  // lane 0: when to repeat Ready
  std::optional<Stop> stop_;
};

}  // namespace pando
