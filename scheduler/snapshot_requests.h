// Snapshots that a person asks for, and the one with which a run ends before its last version. Part
// of the scheduler core. Threads: none.
#pragma once

#include <optional>
#include <string>

#include "scheduler/snapshots.h"

namespace pando {

// SnapshotRequests asks all lanes to store one more version, as a person commands.
class SnapshotRequests {
 public:
  // Both outlive this.
  SnapshotRequests(RunFacts& run, Snapshots& snapshots) : run_(run), snapshots_(snapshots) {}

  // Asks for a version, unless one is asked for already.  Returns the version.
  Version Ask(Micros now);
  // The same after a failure: the run may make no further step, so it asks for what is committed.
  Version AskAfterFailure(Micros now);
  bool is_open() const { return request_.has_value(); }
  bool HasStore() const { return snapshots_.has_store() && run_.phase.is_running(); }
  // What came of the request, once. If a shard has passed the version, a later one is asked for.
  std::optional<CommandReply> TakeResult(Micros now);

  void OnSnapshotAtAck(const PeerId& from, const SnapshotAtAck& ack) {
    acked_.OnAck(from, ack.version);
  }
  void RepeatTo(const PeerId& lane);
  // Lanes forget what they were asked for.
  void StartGeneration(Micros now);
  void Forget(const Member& member) { acked_.Forget(member.peer.incarnation); }

 private:
  struct Request {
    Version version;
    uint32_t attempts = 0;  // 0: of a version that was committed when it was asked for
    Micros patience_until{0};
  };
  void Ask(Micros now, uint32_t attempt);
  // For `committed`, unless a version is asked for already.
  Version AskFor(Micros now, Version committed);
  bool AwaitsNews(Micros now);
  bool HasWorkers() const { return run_.members().CountReady(Role::kWorker) > 0; }

  RunFacts& run_;
  Snapshots& snapshots_;
  std::optional<Request> request_;
  bool is_of_failure_ = false;
  LaneAcks<Version> acked_;
};

// LastSnapshot ends a run before its last version, with a snapshot of where it stands: `pando
// resume` then repeats few steps or none (P33).
class LastSnapshot {
 public:
  // How long the run goes on for the snapshot, at most.
  static constexpr Micros kPatience = std::chrono::seconds(8);

  // All outlive this.
  LastSnapshot(RunFacts& run, const Snapshots& snapshots, SnapshotRequests& requests)
      : run_(run), snapshots_(snapshots), requests_(requests) {}

  // Ends the run once the snapshot is stored; at once if there is nothing new to store, or if an
  // interruption is repeated.
  void End(Micros now, StopReason reason, std::string text);
  bool is_pending() const { return pending_.has_value(); }
  void Tick(Micros now);
  Micros NextDeadline() const { return pending_ ? pending_->patience_until : kNever; }

 private:
  struct Pending {
    Stop stop;
    Version committed;  // when the end was asked for
    Version asked;      // for the snapshot
    Micros patience_until;
  };
  void Ask(Micros now);
  bool HasNews() const;
  Version Stored() const;

  RunFacts& run_;
  const Snapshots& snapshots_;
  SnapshotRequests& requests_;
  std::optional<Pending> pending_;
};

}  // namespace pando
