// SnapshotRequests asks all lanes to store one more version, as a person commands. Part of the
// scheduler core. Threads: none.
#pragma once

#include <optional>
#include <string>

#include "scheduler/journaled_outbox.h"
#include "scheduler/members/lane_acks.h"
#include "scheduler/run_progress.h"
#include "scheduler/snapshots.h"

namespace pando {

class SnapshotRequests {
 public:
  // All outlive this.
  SnapshotRequests(const JobPlan& plan, const RunProgress& progress, Snapshots& snapshots,
                   JournaledOutbox& outbox)
      : plan_(plan), progress_(progress), snapshots_(snapshots), outbox_(outbox) {}

  // Asks for a version, unless one is asked for already.  Returns the version.
  Version Ask(Micros now);
  struct Result {
    CommandOutcome outcome = CommandOutcome::kDone;
    std::string text;  // for people
  };
  // What came of the request, once. If a shard has passed the version, a later one is asked for.
  std::optional<Result> TakeResult(Micros now);

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
    uint32_t attempts = 0;
    Micros patience_until{0};
  };
  void Ask(Micros now, uint32_t attempt);

  const JobPlan& plan_;
  const RunProgress& progress_;
  Snapshots& snapshots_;
  JournaledOutbox& outbox_;
  std::optional<Request> request_;
  LaneAcks<Version> acked_;
};

}  // namespace pando
