// FinalWeights collects the weights of the run's last version, has them kept, and completes the run
// (P33).
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "common/float_buffer.h"
#include "scheduler/gradient_comparison.h"

namespace pando {

class FinalWeights {
 public:
  FinalWeights(const JobPlan& plan, RunObserver& observer, const ViewLedger& views,
               JournaledOutbox& outbox, RunPhase& phase, FaultLedger& faults,
               const EvaluationHistory& history, Snapshots& snapshots,
               const GradientComparison& verification)
      : plan_(plan),
        observer_(observer),
        views_(views),
        outbox_(outbox),
        phase_(phase),
        faults_(faults),
        history_(history),
        snapshots_(snapshots),
        verification_(verification) {}

  // The run's last version is committed and evaluated.
  void StartCollecting(Micros now);
  void OnParams(Micros now, const PeerId& from, const Params& params);
  // Pulls again what is missing, if the servers were silent for long enough.
  void Repeat(Micros now);
  // Completes the run once the weights are here, verified and kept, and the final snapshot is
  // complete or will never be.
  void Tick(Micros now);

  // A server that was asked may be gone.
  void OnView(Micros now) { again_at_ = now; }
  void StartGeneration();

 private:
  bool HasAll() const { return std::ranges::find(collected_, false) == collected_.end(); }
  // Returns false if there is nothing to compare.
  bool StartComparing(Micros now);
  std::optional<PeerId> SourceFor(uint32_t shard) const;
  void AskForMissing(Micros now);
  bool AreKept(Micros now);
  void OnDifference(Micros now, const std::string& text);

  const JobPlan& plan_;
  RunObserver& observer_;
  const ViewLedger& views_;
  JournaledOutbox& outbox_;
  RunPhase& phase_;
  FaultLedger& faults_;
  const EvaluationHistory& history_;
  Snapshots& snapshots_;
  const GradientComparison& verification_;
  std::optional<FloatBuffer> weights_;  // the flat parameter vector
  std::vector<bool> collected_;         // by shard; while it compares: whether they are equal
  bool compares_ = false;               // it collects once more, from backups
  uint32_t pulled_end_ = 0;             // shards below it are collected or asked for
  Micros silence_max_{0};               // after it the missing ones are asked for again
  Micros again_at_{0};
  Micros collecting_since_{0};
  bool has_differed_ = false;           // whether the weights differed from the final snapshot
  std::optional<Micros> unkept_since_;  // the weights are here and cannot be written
  Micros keep_at_{0};                   // when that is tried again
};

}  // namespace pando
