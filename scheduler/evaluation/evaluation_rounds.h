// EvaluationRounds evaluates the versions that are due: each worker gets one slice of the test set
// at a time (P31). Then, if the job has a report, one worker gets the sums (P31a). Lanes keep the
// version until ReleasePin arrives.
#pragma once

#include <optional>
#include <vector>

#include "scheduler/members/lane_acks.h"
#include "scheduler/members/run_members.h"

namespace pando {

class EvaluationRounds : SchedulerPart {
 public:
  EvaluationRounds(const SchedulerPart& part, RunObserver& observer, EvaluationHistory& history,
                   RunProgress& progress, const Members& members)
      : SchedulerPart(part),
        observer_(observer),
        history_(history),
        progress_(progress),
        members_(members) {}

  // Starts the evaluation that is due.  Returns true if all are done and the last version is
  // committed.
  bool StartDue(Micros now);
  void HandOutSlices();
  // Returns whether this worker was given the slice of the result (P46).
  bool HasSlice(NodeId worker, const EvaluationResult& result) const;
  // Adds the result, and after the last slice makes the report due.  Returns true if it is the last
  // one of the run's last evaluation.
  bool OnEvaluationResult(Micros now, const EvaluationResult& result);
  void OnPinReleased(const PeerId& from, const PinReleased& released) {
    released_.OnAck(from, released.version);
  }
  // Gives the slices that this worker has not evaluated to others.
  void ReleaseSlices(NodeId worker);
  void Forget(const Member& member);

  void RepeatTo(const PeerId& lane);
  void RepeatSlices();

  void OnView() { released_.Clear(); }
  void StartGeneration();
  // Drops the results of the versions above `last_good`, which a wrong gradient made (P41), and
  // writes the journal.  Returns false if the journal refuses.
  bool DropAfter(Micros now, Version last_good);

 private:
  struct Slice {  // or the report
    EvaluationPart part = EvaluationPart::kSlice;
    uint32_t index = 0;
    uint64_t first_sample = 0;
    uint64_t last_sample = 0;
    NodeId worker = kUnknownNode;
    std::optional<EvaluationResult> result;
  };
  struct Running {
    Version version;
    std::vector<Slice> slices;  // the report is the last one, after the others' results
    EvaluationSummary summary;  // once all slices of the test set have their results
  };
  // Returns null if the running evaluation has no such slice.
  const Slice* FindSlice(const EvaluationResult& result) const;
  void SendSlice(const PeerId& worker, const Slice& slice);
  bool IsAnswered() const;
  bool Advance(Micros now);
  bool Finish(Micros now);
  void TellDecision(Micros now);
  void TellStop(Micros now, Version last);

  RunObserver& observer_;
  EvaluationHistory& history_;
  RunProgress& progress_;
  const Members& members_;
  std::optional<Running> running_;
  LaneAcks<Version> released_;  // the versions whose pins each lane has released under this view
};

}  // namespace pando
