// GradientComparison compares the gradients that two workers compute of one micro-batch (P41). If
// they differ, the run begins again before that step, and a third worker's gradient decides which
// of the two was wrong. Part of the scheduler core. Threads: none.
#pragma once

#include <optional>
#include <vector>

#include "scheduler/evaluations.h"
#include "scheduler/ledgers/verify_ledger.h"
#include "scheduler/snapshots.h"

namespace pando {

class GradientComparison {
 public:
  // `state`: what the journal has, if there is one. The references outlive this.
  GradientComparison(RunFacts& run, const std::optional<SchedulerState>& state,
                     EvaluationRounds& evaluations, Snapshots& snapshots);

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
  // Whether all steps of the run are.
  bool IsSettled() const;
  VerificationState State() const;

 private:
  void OnDispute(Micros now, const Dispute& dispute);
  bool IsParty(NodeId worker) const;
  bool IsOfDisputedKind(NodeId worker) const;
  bool IsJudgement(const GradientHash& report) const;
  void Judge(Micros now, NodeId judge, const GradientHash& report);
  void Expel(Micros now, const Opinion& wrong, const Dispute& dispute);

  RunFacts& run_;
  EvaluationRounds& evaluations_;
  Snapshots& snapshots_;
  VerifyLedger ledger_;
  std::optional<Dispute> dispute_;
  uint32_t dispute_count_ = 0;
};

}  // namespace pando
