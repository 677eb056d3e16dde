// Lane is the server's protocol core: it has the shards of one thread and shares nothing with other
// lanes. It routes each message to the part that handles it, and merges the parts' deadlines. The
// parts own all state. net/event_loop and the simulator run it.
//
// clang-format off
//   message            | part           | answer
//   -------------------+----------------+---------------------------------------------------------
//   Push               | ShardSteps     | Params, when the version is committed. Before that
//                      |                | Pending, only for a duplicate or an encoded push. Or
//                      |                | Behind; NotPrimary
//   Pull               | Replies        | Params, Pending (Params then follows by itself), Behind,
//                      |                | NotPrimary
//   Question           | Replies        | Answer, with its view; to a question of another view
//                      |                | none, but a ViewHint if the lane's view is newer
//   ViewUpdate         | all            | ViewAck; a newer view replaces the old one, a newer
//                      |                | generation all that is held (P21)
//   ViewDelta          | all            | the same; ViewWanted if it does not fit (P17a)
//   ViewHint           | ViewMember     | ViewWanted, if its sender's view is newer (P13)
//   ViewWanted         | ViewMember     | ViewUpdate
//   Root               | Following      | RootAck, repeated for a repeated root; none between
//                      |                | unequal views (P13). A promoted primary's question may
//                      |                | get a Root before it
//                      | ShardSteps     | none; a backup's answer makes the version (P22)
//   RootAck            | Replication    | none; the version is committed once every required
//                      |                | backup has acknowledged it, or Divergence to the scheduler
//   Chunk              | Following      | ChunkAck; none of another pair (P24)
//   ChunkAck           | Replication    | the next chunks; then the roots since; then Synced to the
//                      |                | scheduler
//   Partials           | Norms          | none; shards that waited for them advance (P16)
//   PartialsPull       | Norms          | Partials, with the values that are known, even if none
//   HashWanted         | Following      | RecordHashes, if the version is made (P8)
//   Scalars            | ScalarBlocks   | none; shards that waited for them advance
//   ProgressAck        | ProgressReport | none; rows below it are forgotten
//   ReleasePin         | Replicas       | PinReleased; versions that the pin held up are made
//   SnapshotAt         | ShardSnapshots | SnapshotAtAck; that version is stored too
//   SnapshotAck        | ShardSnapshots | none; it is not reported again
//   Stop               | LaneLife       | Bye; finished() from then on
//   Refused            | LaneLife       | none; finished() from then on
//
//   A shard that is still being restored is left out of Answers, its Pulls are Pending, and a Push,
//   which no worker has reason to send yet, is not answered.
//   Messages of replicas, and workers' requests to a primary, under a view that the lane has not
//   entered yet wait for that view (EarlyMessages).
// clang-format on
//
// Threads: none. Owns: its parts. Invariants I2, I3, I4, I6.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "proto/protocol_core.h"
#include "server/following.h"
#include "server/lane_life.h"
#include "server/shard_steps.h"

namespace pando {

class Lane : public ProtocolCore {
 public:
  struct Options {
    ViewMember::Identity identity;
    std::string kind;  // for the Ready that lane 0 sends for its process
    Micros lease = std::chrono::seconds(1);
    LaneProbe* probe = nullptr;                   // outlives the lane; null: there is no timeline
    BufferSource buffers = {};                    // supplies the memory of what is sent
    size_t norm_peers_max = NormTree::kPeersMax;  // NormTree's peers_max
  };
  // `plan`, `snapshots` and `outbox` outlive the lane.
  Lane(const Options& options, const JobPlan& plan, SnapshotPort& snapshots, Outbox& outbox);

  void OnMessage(Micros now, const Envelope& envelope) override;
  // Handles an answer of the SnapshotPort.
  void OnSnapshotEvent(Micros now, SnapshotEvent event);
  // Sends Leave until Stop arrives: the process was asked to leave. One lane per process does it.
  void StartLeaving(Micros now) { reports_.StartLeaving(now); }
  void Tick(Micros now) override;
  Micros NextDeadline() const override;

  bool finished() const { return life_.finished(); }
  // How the scheduler ended the job.  REQUIRES: finished().
  const Stop& stop() const { return life_.stop(); }
  // How the scheduler refused this life of the lane, if it did.
  const std::optional<RefusalKind>& refusal() const { return life_.refusal(); }
  const PeerId& self() const { return member_.self(); }
  const PeerId& scheduler() const { return member_.scheduler(); }
  bool has_view() const { return member_.has_view(); }
  const View& view() const { return member_.view(); }
  // Returns the view that the lane will enter with this message, if there is one. Its members are
  // dialed first.
  std::optional<SharedView> NextView(const Envelope& envelope) const {
    return member_.NextView(envelope);
  }
  Version committed() const { return replicas_.committed(); }
  const std::map<ShardId, Replica>& replicas() const { return replicas_.all(); }
  bool is_primary_of_any() const { return replicas_.is_primary_of_any(); }
  // Returns the backup that has owed an acknowledgement for the longest time.
  std::optional<Replication::Owed> OldestOwed() const { return replication_.OldestOwed(); }

 private:
  void Route(Micros now, const Envelope& envelope);
  void OnView(Micros now, const Envelope& envelope);
  void EnterView(Micros now);
  void EnterGeneration();

  ViewMember member_;
  const VersionMaker maker_;
  uint32_t generation_ = 0;  // the generation of everything that is held
  Replicas replicas_;
  EarlyMessages early_;
  Reports::Clock report_clock_;
  LaneLife life_;
  Replies replies_;
  ScalarBlocks scalars_;
  ProgressReport progress_;
  ShardSnapshots snapshots_;
  Norms norms_;
  Inquiry inquiry_;
  Replication replication_;
  Following following_;
  ShardSteps steps_;
  Reports reports_;
};

}  // namespace pando
