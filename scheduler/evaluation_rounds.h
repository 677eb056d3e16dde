// EvaluationRounds has due versions evaluated: each worker gets one slice of the test set at a time
// (P31). Lanes keep the version until ReleasePin arrives.
#pragma once

#include <optional>
#include <vector>

#include "scheduler/members/lane_acks.h"
#include "scheduler/members/run_members.h"

namespace pando {

class EvaluationRounds {
 public:
  EvaluationRounds(const JobPlan& plan, RunObserver& observer, const ViewLedger& views,
                   JournaledOutbox& outbox, RunPhase& phase, EvaluationHistory& history,
                   RunProgress& progress, const Members& members)
      : plan_(plan),
        observer_(observer),
        views_(views),
        outbox_(outbox),
        phase_(phase),
        history_(history),
        progress_(progress),
        members_(members) {}

  // Starts the evaluation that is due.  Returns true if none is to come and the run's last version
  // is committed.
  bool StartDue(Micros now);
  void HandOutSlices();
  // Whether this worker was given the slice of the result (P46).
  bool HasSlice(NodeId worker, const EvaluationResult& result) const;
  // Returns true if it was the last result of the run's last evaluation.
  bool OnEvaluationResult(Micros now, const EvaluationResult& result);
  void OnPinReleased(const PeerId& from, const PinReleased& released) {
    released_.OnAck(from, released.version);
  }
  // Other workers get the slices that this one has not evaluated.
  void ReleaseSlices(NodeId worker);
  void Forget(const Member& member);

  void RepeatTo(const PeerId& lane);
  void RepeatSlices();

  void OnView() { released_.Clear(); }
  void StartGeneration();
  // A wrong gradient made the versions above `last_good` (P41): drops their results, and writes the
  // journal.  Returns false if that refuses.
  bool DropAfter(Micros now, Version last_good);

 private:
  struct Slice {
    uint32_t index = 0;
    uint64_t first_sample = 0;
    uint64_t last_sample = 0;
    NodeId worker = kUnknownNode;
    std::optional<EvaluationResult> result;
  };
  struct Running {
    Version version;
    std::vector<Slice> slices;
  };
  // Null if it is of no slice of the running evaluation.
  const Slice* FindSlice(const EvaluationResult& result) const;
  void SendSlice(const PeerId& worker, const Slice& slice);
  bool Finish(Micros now);
  void TellDecision(Micros now);

  const JobPlan& plan_;
  RunObserver& observer_;
  const ViewLedger& views_;
  JournaledOutbox& outbox_;
  RunPhase& phase_;
  EvaluationHistory& history_;
  RunProgress& progress_;
  const Members& members_;
  std::optional<Running> running_;
  LaneAcks<Version> released_;  // under the view
};

}  // namespace pando
