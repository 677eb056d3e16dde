// Lane is the server's protocol core: one thread's worth of shards, nothing shared with other
// lanes. It routes messages to its replicas, gathers what they answer into few messages (P6),
// replicates what it is the primary of, stores snapshots, asks the scheduler for scalars and
// reports to it. Run by net/event_loop, and by the simulator.
//
// clang-format off
//   message            | answer
//   -------------------+--------------------------------------------------------------------------
//   Push               | Params once committed; Pending for a duplicate before; Behind; NotPrimary
//   Pull               | Params, Pending (Params then follows unasked), Behind, NotPrimary
//   Question           | Answer, with the question's view; a question of another view: none, but
//                      | our view if it is newer
//   ViewUpdate         | ViewAck; a newer view replaces ours, a newer generation all we hold (P21)
//   Root               | RootAck, repeated for a repeated root; none between unequal views (P13)
//   RootAck            | none; the version is committed once all who must have acknowledged it, or
//                      | Divergence to the scheduler
//   Chunk              | ChunkAck; none of another pair (P24)
//   ChunkAck           | the next chunks; then the roots since; then Synced to the scheduler
//   Partials           | none; shards that waited for them advance (P16)
//   PartialsPull       | Partials, with what is there, be it nothing: it is repeated
//   Scalars            | none; shards that waited for them advance
//   ProgressAck        | none; rows below it are forgotten
//   ReleasePin         | PinReleased
//   SnapshotAt         | SnapshotAtAck; that version is stored too
//   SnapshotAck        | none; it is not reported again
//   Stop               | Bye; finished() from then on
//   Refused            | none; finished() from then on
//
//   A shard that is still being restored is left out of Answers, its Pulls are Pending, and a Push,
//   which nobody has reason to send yet, is not answered.
//   What replicas say, and workers ask of a primary, under a view that we are yet to hear of waits
//   for it.
// clang-format on
//
// Threads: none. Owns: its replicas. Invariants I2, I3, I4, I6.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "proto/core.h"
#include "proto/silence.h"
#include "proto/view_member.h"
#include "server/lane_probe.h"
#include "server/partials.h"
#include "server/replica.h"
#include "server/snapshot_port.h"

namespace pando {

class Lane : public ProtocolCore {
 public:
  struct Options {
    ViewMember::Identity identity;
    std::string kind;  // of the Ready that lane 0 sends for its process
    Micros lease = std::chrono::seconds(1);
    LaneProbe* probe = nullptr;  // outlives the lane; null: nobody looks
    BufferSource buffers = {};   // of what travels: sums and parameters
  };
  // `plan`, `snapshots` and `outbox` outlive the lane.
  Lane(const Options& options, const JobPlan& plan, SnapshotPort& snapshots, Outbox& outbox);

  void OnMessage(Micros now, const Envelope& envelope) override;
  // What the SnapshotPort answers.
  void OnSnapshotEvent(Micros now, SnapshotEvent event);
  // The process was asked to leave: says so until Stop. One lane of the process is enough.
  void StartLeaving(Micros now);
  void Tick(Micros now) override;
  Micros NextDeadline() const override;

  bool finished() const { return stop_.has_value(); }
  // How the scheduler ended the job.  REQUIRES: finished().
  const Stop& stop() const { return *stop_; }
  // How the scheduler refused this life of ours, if it did.
  const std::optional<RefusalKind>& refusal() const { return refusal_; }
  const PeerId& self() const { return member_.self(); }
  const PeerId& scheduler() const { return member_.scheduler(); }
  bool has_view() const { return member_.has_view(); }
  const View& view() const { return member_.view(); }
  // Whether this message brings a view that the lane will enter: who it names is dialed first.
  bool WillEnter(const Envelope& envelope) const { return member_.WillEnter(envelope); }
  // Every shard whose primary this lane is has committed it; the final version if there is none.
  Version committed() const;
  const std::map<ShardId, Replica>& replicas() const { return replicas_; }
  bool is_primary_of_any() const;

 private:
  template <class M>
  void OnMessageOf(Micros, const Envelope&, const M&) {}  // not for a lane
  // Workers (lane.cc).
  void OnMessageOf(Micros now, const Envelope& envelope, const Push& push);
  void OnMessageOf(Micros now, const Envelope& envelope, const Pull& pull);
  void OnMessageOf(Micros now, const Envelope& envelope, const Question& question);
  void OnMessageOf(Micros now, const Envelope& envelope, const ReleasePin& release);
  Replica* FindPrimary(ShardId shard);
  Shard::Taken Add(Replica& replica, const PushItem& item);
  template <class M>
  void AnswerNotPrimary(const Envelope& envelope, M others);
  // Whether shards whose primary this lane is differ in this version of theirs.
  template <class VersionOf>
  bool VersionsDiffer(VersionOf version_of) const {
    std::optional<Version> first;
    for (const auto& [id, replica] : replicas_) {
      if (!replica.is_primary() || !replica.shard.has_data()) continue;
      const Version version = version_of(replica.shard);
      if (first && version != *first) return true;
      first = version;
    }
    return false;
  }
  struct Wanted {
    TreeNode node;  // of the push that asks; of none for a pull
    Version version;
    ParamsForm form;
  };
  void AnswerFor(const PeerId& peer, Replica& replica, const Wanted& wanted, bool says_pending);
  void TryAdvance(Micros now, Replica& replica);
  void MakeSealed();
  template <class Make>
  void MakeNext(Replica& replica, const Make& make);
  void Commit(Micros now, Replica& replica);
  void Show(Micros now, Replica& replica);
  void ReplyToWaiting(Replica& replica);
  void FlushReplies(Micros now);
  void SendReplies(PeerId peer);
  void FlushRoots(Micros now);
  // Membership and roles (lane_view.cc).
  void OnMessageOf(Micros now, const Envelope& envelope, const ViewUpdate& update);
  void OnMessageOf(Micros now, const Envelope& envelope, const Stop& stop);
  void OnMessageOf(Micros now, const Envelope& envelope, const Refused& refused);
  bool IsEarly(const Envelope& envelope) const;
  void KeepEarly(Envelope envelope);
  void Discard();
  void EnterView(Micros now);
  void Assume(Micros now, ShardId id, const ShardPlacement& placement);
  void AssumePrimary(Micros now, Replica& replica, const ShardPlacement& placement);
  void AssumeBackup(Micros now, Replica& replica, const PeerId& primary);
  void AssumeSyncing(Replica& replica, const PeerId& primary, ViewId since);
  void Drop(ShardId id);
  void Restore(Micros now, Replica& replica);
  void BeWhole(Micros now, Replica& replica);
  bool IsRestoring() const;
  // Replication (lane_replication.cc).
  void OnMessageOf(Micros now, const Envelope& envelope, const Root& root);
  void OnMessageOf(Micros now, const Envelope& envelope, const RootAck& ack);
  void OnMessageOf(Micros now, const Envelope& envelope, const Chunk& chunk);
  void OnMessageOf(Micros now, const Envelope& envelope, const ChunkAck& ack);
  bool CountsForReplication(const Envelope& envelope) const;
  void OnRootItem(const PeerId& from, const RootItem& item);
  Shard::Followed Follow(Shard& shard, const RootItem& item);
  void Acknowledge(const Replica& replica, Version version);
  void FlushAcks();
  Backup* FindBackup(ShardId shard, const PeerId& peer);
  void GatherRoots(Micros now, const Replica& replica, Backup& backup, Version after);
  void OnAcked(Micros now, Backup& backup, const RootAckItem& item);
  bool MayCommit(const Replica& replica) const;
  void CommitAcknowledged(Micros now);
  void StartTransfers(Micros now, Replica& replica);
  void SendChunks(Micros now, Backup& backup);
  void NoteCaughtUp(Micros now, const Shard& shard, Backup& backup);
  void ExpectAnswer(Micros now, Backup& backup);
  void RepeatReplication(Micros now);
  void PutOffRepeat(Backup& backup) const;
  void RepeatTo(Micros now, const Replica& replica, Backup& backup);
  void ReportSilent(const PeerId& peer, Micros silence);
  // Values over several shards (lane_partials.cc).
  void OnMessageOf(Micros now, const Envelope& envelope, const Partials& partials);
  void OnMessageOf(Micros now, const Envelope& envelope, const PartialsPull& pull);
  std::optional<std::vector<float>> FactorsOf(Micros now, Replica& replica,
                                              const StepScalars& scalars);
  std::span<const float> PartialsAt(ShardId shard, Step step) const;
  void TellPartials(const Shard& shard);
  void FlushPartials(Micros now);
  void AdvanceByPartials(Micros now);
  void PullPartials(Micros now);
  // Snapshots (lane_snapshot.cc).
  void OnMessageOf(Micros now, const Envelope& envelope, const SnapshotAt& at);
  void OnMessageOf(Micros now, const Envelope& envelope, const SnapshotAck& ack);
  void OnStored(Micros now, const RecordStored& stored);
  void OnLoaded(Micros now, RecordLoaded loaded);
  Status Install(Replica& replica, RecordLoaded loaded);
  void StoreIfDue(Micros now, Replica& replica);
  void ReportStored(Micros now, SnapshotStoredItem item);
  // Scalars and reports (lane_report.cc).
  void OnMessageOf(Micros now, const Envelope& envelope, const Scalars& scalars);
  void OnMessageOf(Micros now, const Envelope& envelope, const ProgressAck& ack);
  Step LowestStep() const;
  Step HighestStep() const;
  bool IsWanted(uint64_t scalar_block) const;
  bool LacksScalars() const;
  void AskForScalars(Micros now);
  const StepScalars* FindScalars(Step step) const;
  void NoteMetrics(const Shard& shard);
  void ForgetRowsBelow(Step step);
  size_t ReportableRows() const;
  bool HasProgressToReport() const;
  void ReportProgress(Micros now);
  void SpeakSoon(Micros now);
  void RepeatReports(Micros now);
  bool SendReports();
  bool SendSynced();

  const std::string kind_;
  const Micros lease_;
  LaneProbe* const probe_;
  const BufferSource buffers_;
  const JobPlan& plan_;
  SnapshotPort& snapshots_;
  ViewMember member_;
  Optimizer optimizer_;
  PartialPlan partial_plan_;
  uint32_t generation_ = 0;  // of all that is held
  std::map<ShardId, Replica> replicas_;
  Version released_;             // versions up to here need no pin (P31)
  std::vector<Envelope> early_;  // of views that we are yet to hear of; at most kEarlyMax
  // Gathered until Tick, or a little longer.
  std::map<PeerId, Params> params_out_;
  std::optional<Micros> params_held_until_;
  std::map<PeerId, PushReply> replies_out_;
  std::map<PeerId, Root> roots_out_;
  std::optional<Micros> roots_held_until_;
  std::map<PeerId, RootAck> acks_out_;
  // Until Tick: shards whose sealed root is made a record of, and those that may commit.
  std::set<ShardId> sealed_;
  std::set<ShardId> acknowledged_;
  std::map<std::pair<Step, ShardId>, std::vector<float>>
      partials_;                             // others'; of two steps at most
  std::map<PeerId, Partials> partials_out_;  // until Tick, or a little longer
  std::optional<Micros> partials_held_until_;
  bool has_partials_news_ = false;  // shards may advance
  bool awaits_partials_ = false;
  Silence partials_silence_;    // of the lanes that they were pulled of
  bool is_view_fresh_ = false;  // who it names may have told its values to others: asked at once
  Micros pull_partials_at_{0};
  Micros repeat_at_ = kNever;                 // the earliest repeat of a root or chunk
  std::map<PeerId, Micros> heard_at_;         // backups: when they last answered
  std::map<PeerId, Micros> acknowledged_at_;  // a root
  std::map<uint64_t, std::vector<StepScalars>> scalar_blocks_;  // by index of block; at most two
  Micros ask_scalars_at_{0};
  std::vector<StepMetrics> rows_;    // of versions made, not known to the scheduler
  Step known_row_;                   // rows below it are
  std::optional<Version> reported_;  // under this view: acknowledged
  std::optional<Version> sent_;      // under this view: last sent
  Micros report_at_{0};
  std::set<Version> asked_;  // to be stored beside the due ones
  Version asked_max_;
  // Repeated to the scheduler until answered.
  std::map<std::pair<Version, ShardId>, SnapshotStoredItem> stored_;
  std::map<std::pair<ShardId, PeerId>, Divergence> divergences_;
  std::optional<RestoreFailed> restore_failed_;  // the first of the generation, or a damage
  bool is_leaving_ = false;
  Micros speak_at_ = kNever;
  Micros silent_until_{0};  // reports are gathered until then
  Micros ready_at_{0};      // lane 0: when to repeat Ready
  std::optional<Stop> stop_;
  std::optional<RefusalKind> refusal_;
};

}  // namespace pando
