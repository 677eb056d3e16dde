// GradientComparison compares the gradients that two workers compute of one micro-batch (P41). If
// they differ, the run rolls back to before that step, and a third worker's gradient decides which
// of the two was wrong.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "scheduler/ownership.h"
#include "scheduler/snapshots.h"

namespace pando {

// VerifyLedger compares two gradients of a micro-batch by workers of the same kind (P40, P41).
//
// A micro-batch that the job verifies is settled after its step is made, once two workers agree,
// the second one has no gradient, there is no second one, or kPatience has passed. Steps are
// settled in order. Reports are kept for kPatience: a worker whose shards counted may report late.
class VerifyLedger {
 public:
  static constexpr size_t kEntriesMax = 1 << 16;
  // How long a step that is made waits for its second opinions.
  static constexpr Micros kPatience = std::chrono::seconds(2);

  explicit VerifyLedger(const JobPlan& plan) : plan_(plan) {}  // `plan` outlives the ledger

  // Adds a worker's gradient of a micro-batch.  Returns a dispute if another worker of its kind
  // computed another gradient; the caller fills in its generation.
  std::optional<Dispute> OnReport(Step step, MicroBatch micro_batch, const Opinion& opinion);
  // Makes this micro-batch wait for a third worker's gradient.
  void AwaitJudge(Step step, MicroBatch micro_batch) {
    entries_[{step, micro_batch}].is_judged = true;
  }
  // Settles this micro-batch. `is_agreed`: two workers computed the same gradient.
  void Settle(Step step, MicroBatch micro_batch, bool is_agreed);
  using WorkerCounts = std::map<uint64_t, uint32_t>;  // by probe hash
  void Advance(Micros now, Version committed, const WorkerCounts& workers);
  // All steps below this one are settled.
  Step settled_below() const { return state_.settled_below; }
  void StartGeneration(Step first);

  // The state for the journal, in which the caller sets the dispute.
  const VerificationState& state() const { return state_; }
  // Continues from an earlier life's state.  REQUIRES: nothing has been reported yet.
  void Resume(const VerificationState& state);

 private:
  struct Entry {
    std::vector<Opinion> opinions;  // at most one of each worker
    bool is_judged = false;         // only a judge's report settles it
    bool is_settled = false;
    bool is_agreed = false;
    bool is_unverified = false;  // counted in unverified_count
  };
  void Agree(Entry& entry);
  bool IsSettled(Step step, const WorkerCounts& workers) const;
  bool HasSecond(const Entry& entry, const WorkerCounts& workers) const;
  void Count(Step step);

  const JobPlan& plan_;
  std::map<std::pair<Step, MicroBatch>, Entry> entries_;  // of steps from kept_from_ on
  VerificationState state_;
  Step kept_from_;                                  // <= state_.settled_below
  std::deque<std::pair<Micros, Version>> history_;  // recent versions and when they were committed
  // Steps below this one without reports are not counted: an earlier life may have done so.
  Step counted_from_;
  bool has_resumed_ = false;  // the committed version is not known yet
};

class GradientComparison : SchedulerPart {
 public:
  // `state`: the journal's, if there is one.
  GradientComparison(const std::optional<SchedulerState>& state, const SchedulerPart& part,
                     const EvaluationHistory& history, const RunProgress& progress,
                     RunMembers& membership, EvaluationRounds& evaluations, Snapshots& snapshots,
                     const Ownership& ownership);

  void OnGradientHashes(Micros now, const PeerId& from, const GradientHashes& hashes);
  void Tick(Micros now);
  // Repeats the rollback of a dispute, if the scheduler restarted before it took place.
  void OnRestart(Micros now);
  void StartGeneration(Step first);

  bool has_dispute() const { return dispute_.has_value(); }
  // Gives the disputed micro-batch to a worker that can judge it, if there is one. `workers` has
  // the owner of each micro-batch.
  void AppointJudge(std::vector<NodeId>& workers) const;
  // Returns the newest version that a new generation may begin from: the version to evaluate next,
  // and everything after a wrong gradient, must be made again.
  Version RestoreBound() const;
  // All steps below this one are verified.
  Step settled_below() const { return ledger_.settled_below(); }
  // Returns whether all steps of the run are verified.
  bool IsSettled() const;
  VerificationState State() const;

 private:
  void OnDispute(Micros now, const Dispute& dispute);
  void Close(Micros now);
  bool IsParty(NodeId worker) const;
  bool IsOfDisputedKind(NodeId worker) const;
  bool IsJudgement(const GradientHash& report) const;
  void Judge(Micros now, NodeId judge, const GradientHash& report);
  void Expel(Micros now, const Opinion& wrong, const Dispute& dispute);

  const EvaluationHistory& history_;
  const RunProgress& progress_;
  RunMembers& membership_;
  EvaluationRounds& evaluations_;
  Snapshots& snapshots_;
  const Ownership& ownership_;
  VerifyLedger ledger_;
  std::optional<Dispute> dispute_;
  uint32_t dispute_count_ = 0;
};

}  // namespace pando
