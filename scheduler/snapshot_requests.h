// SnapshotRequests asks all lanes to store one more version, as a person commands.
#pragma once

#include <optional>

#include "scheduler/members/lane_acks.h"
#include "scheduler/snapshots.h"

namespace pando {

class SnapshotRequests {
 public:
  SnapshotRequests(const JobPlan& plan, JournaledOutbox& outbox, const RunPhase& phase,
                   const RunProgress& progress, const Members& members, Snapshots& snapshots)
      : plan_(plan),
        outbox_(outbox),
        phase_(phase),
        progress_(progress),
        members_(members),
        snapshots_(snapshots) {}

  // Asks for a version, unless one is asked for already.  Returns the version.
  Version Ask(Micros now);
  // The same after a failure: the run may make no further step, so it asks for what is committed.
  Version AskAfterFailure(Micros now);
  bool is_open() const { return request_.has_value(); }
  bool HasStore() const { return snapshots_.has_store() && phase_.is_running(); }
  // Returns the result of the request, once. If a shard has passed the version, this asks for a
  // later one.
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
    uint32_t attempts = 0;  // 0: the version was committed when it was asked for
    Micros patience_until{0};
  };
  void Ask(Micros now, uint32_t attempt);
  // For `committed`, unless a version is asked for already.
  Version AskFor(Micros now, Version committed);
  bool AwaitsNews(Micros now);
  bool HasWorkers() const { return members_.CountReady(Role::kWorker) > 0; }

  const JobPlan& plan_;
  JournaledOutbox& outbox_;
  const RunPhase& phase_;
  const RunProgress& progress_;
  const Members& members_;
  Snapshots& snapshots_;
  std::optional<Request> request_;
  bool is_of_failure_ = false;
  LaneAcks<Version> acked_;
};

}  // namespace pando
