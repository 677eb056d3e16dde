// GradientComparison compares the gradients that two workers compute of one micro-batch (P41). If
// they differ, the run begins again before that step, and a third worker's gradient decides which
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

// VerifyLedger compares the gradients that two workers of one kind compute of the same micro-batch
// (P40, P41).
//
// When a step is made, each of its micro-batches that the job verifies is settled once two workers
// agree, or the second has no gradient, or there is no second worker, or no report came for a
// while. Steps are settled in order. The reports of a settled step are kept for the same time: a
// worker whose shards counted may report late.
class VerifyLedger {
 public:
  static constexpr size_t kEntriesMax = 1 << 16;
  // How long after a step is made a second opinion of it is waited for.
  static constexpr Micros kPatience = std::chrono::seconds(2);

  explicit VerifyLedger(const JobPlan& plan) : plan_(plan) {}  // `plan` outlives the ledger

  // A worker's gradient of a micro-batch.  Returns the dispute if another worker of its kind
  // computed another one; the caller fills in its generation.
  std::optional<Dispute> OnReport(Step step, MicroBatch micro_batch, const Opinion& opinion);
  // A third worker's gradient of this micro-batch is needed.
  void AwaitJudge(Step step, MicroBatch micro_batch) {
    entries_[{step, micro_batch}].is_judged = true;
  }
  // No more reports of this micro-batch are needed. `is_agreed`: two workers computed the same.
  void Settle(Step step, MicroBatch micro_batch, bool is_agreed);
  using WorkerCounts = std::map<uint64_t, uint32_t>;  // by probe hash
  void Advance(Micros now, Version committed, const WorkerCounts& workers);
  // Steps below are settled.
  Step settled_below() const { return state_.settled_below; }
  void StartGeneration(Step first);

  // For the journal; the dispute is the caller's.
  const VerificationState& state() const { return state_; }
  // Continues from an earlier life's state.  REQUIRES: nothing has been reported yet.
  void Resume(const VerificationState& state);

 private:
  struct Entry {
    std::vector<Opinion> opinions;  // each from another worker
    bool is_judged = false;         // only a judge's report settles it
    bool is_settled = false;
    bool is_agreed = false;
    bool is_unverified = false;  // it is counted as unverified
  };
  void Agree(Entry& entry);
  bool IsSettled(Step step, const WorkerCounts& workers) const;
  bool HasSecond(const Entry& entry, const WorkerCounts& workers) const;
  void Count(Step step);

  const JobPlan& plan_;
  std::map<std::pair<Step, MicroBatch>, Entry> entries_;  // for the steps from kept_from_ on
  VerificationState state_;
  Step kept_from_;                                  // <= state_.settled_below
  std::deque<std::pair<Micros, Version>> history_;  // when each version was committed, lately
  // Missing reports of steps below this one do not count: an earlier life may have settled them.
  Step counted_from_;
  bool has_resumed_ = false;  // the committed version is not known yet
};

class GradientComparison {
 public:
  // `state`: the journal's, if there is one.
  GradientComparison(const std::optional<SchedulerState>& state, const JobPlan& plan,
                     ViewLedger& views, JournaledOutbox& outbox, RunPhase& phase,
                     const EvaluationHistory& history, const RunProgress& progress,
                     RunMembers& membership, EvaluationRounds& evaluations, Snapshots& snapshots,
                     const Ownership& ownership);

  void OnGradientHashes(Micros now, const PeerId& from, const GradientHashes& hashes);
  void Tick(Micros now);
  // The scheduler has restarted while the run was training.
  void OnRestart(Micros now);
  void StartGeneration(Step first);

  bool has_dispute() const { return dispute_.has_value(); }
  // Gives the disputed micro-batch to a worker that can judge it, if there is one. `workers`: by
  // micro-batch.
  void AppointJudge(std::vector<NodeId>& workers) const;
  // A new generation begins from this version or an earlier one: what is to be evaluated must be
  // made again, and so must everything after a wrong gradient.
  Version RestoreBound() const;
  // Steps below are verified.
  Step settled_below() const { return ledger_.settled_below(); }
  // Whether all steps of the run are verified.
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

  const JobPlan& plan_;
  ViewLedger& views_;
  JournaledOutbox& outbox_;
  RunPhase& phase_;
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
