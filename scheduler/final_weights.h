// FinalWeights collects the weights of the run's last version, has them kept, and completes the run
// (P33). Part of the scheduler core. Threads: none.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "common/float_buffer.h"
#include "scheduler/verification.h"

namespace pando {

class FinalWeights {
 public:
  // All outlive this.
  FinalWeights(RunFacts& run, const GradientComparison& verification, Snapshots& snapshots)
      : run_(run), verification_(verification), snapshots_(snapshots) {}

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

  RunFacts& run_;
  const GradientComparison& verification_;
  Snapshots& snapshots_;
  std::optional<FloatBuffer> weights_;  // the flat parameter vector
  std::vector<bool> collected_;         // by shard; if it compares: those that are equal
  bool compares_ = false;               // collects once more, from backups
  uint32_t pulled_end_ = 0;             // shards below it are collected or asked for
  Micros silence_max_{0};               // before the missing ones are asked for again
  Micros again_at_{0};
  Micros collecting_since_{0};
  bool has_differed_ = false;           // the weights, from the final snapshot
  std::optional<Micros> unkept_since_;  // the weights are here and cannot be written
  Micros keep_at_{0};                   // when that is tried again
};

}  // namespace pando
