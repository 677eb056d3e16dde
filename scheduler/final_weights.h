// FinalWeights pulls the weights of the run's last version from the servers, hands them to the
// observer, which writes them, and completes the run (P33).
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "common/float_buffer.h"
#include "scheduler/gradient_comparison.h"

namespace pando {

class FinalWeights : SchedulerPart {
 public:
  FinalWeights(const SchedulerPart& part, RunObserver& observer, FaultLedger& faults,
               const EvaluationHistory& history, Snapshots& snapshots,
               const GradientComparison& verification)
      : SchedulerPart(part),
        observer_(observer),
        faults_(faults),
        history_(history),
        snapshots_(snapshots),
        verification_(verification) {}

  // Begins to pull. The run's last version is committed and evaluated.
  void StartCollecting(Micros now);
  void OnParams(Micros now, const PeerId& from, const Params& params);
  // Pulls the missing shards again, if the servers were silent for long enough.
  void Repeat(Micros now);
  // Completes the run once the weights have arrived, are verified and are written, and the final
  // snapshot is complete or will never be.
  void Tick(Micros now);

  // Makes Repeat pull at once: the new view may lack a server that was asked.
  void OnView(Micros now) { again_at_ = now; }
  void StartGeneration();

 private:
  bool HasAll() const { return std::ranges::find(collected_, false) == collected_.end(); }
  // Pulls the shards again from backups.  Returns false if there is nothing to compare.
  bool StartComparing(Micros now);
  std::optional<PeerId> SourceFor(uint32_t shard) const;
  void AskForMissing(Micros now);
  bool AreKept(Micros now);
  void OnDifference(Micros now, const std::string& text);

  RunObserver& observer_;
  FaultLedger& faults_;
  const EvaluationHistory& history_;
  Snapshots& snapshots_;
  const GradientComparison& verification_;
  std::optional<FloatBuffer> weights_;  // the flat parameter vector
  std::vector<bool> collected_;         // by shard; in a comparison: whether it is equal
  bool compares_ = false;               // it pulls once more, from backups
  uint32_t pulled_end_ = 0;             // shards below it are collected or asked for
  Micros silence_max_{0};               // the missing ones are asked for again after it
  Micros again_at_{0};
  Micros collecting_since_{0};
  bool has_differed_ = false;           // whether the weights differed from the final snapshot
  std::optional<Micros> unkept_since_;  // set while the weights cannot be written
  Micros keep_at_{0};                   // when writing is tried again
};

}  // namespace pando
