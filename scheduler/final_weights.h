// FinalWeights collects the weights of the run's last version, has them kept, and completes the run
// (P33). Part of the scheduler core. Threads: none.
#pragma once

#include <optional>
#include <vector>

#include "common/float_buffer.h"
#include "scheduler/snapshots.h"
#include "scheduler/verification.h"

namespace pando {

class FinalWeights {
 public:
  struct Parts {  // all outlive this
    const View& view;
    const Rollback& rollback;
    const EvaluationHistory& history;
    const GradientComparison& verification;
    Snapshots& snapshots;
    FaultLedger& faults;
    RunPhase& phase;
    RunObserver& observer;
    JournaledOutbox& outbox;
  };
  FinalWeights(const JobPlan& plan, const Parts& parts) : plan_(plan), parts_(parts) {}

  // The run's last version is committed and evaluated.
  void StartCollecting(Micros now);
  void OnParams(Micros now, const Params& params);
  // Pulls again what is missing, if the servers were silent for long enough.
  void Repeat(Micros now);
  // Completes the run once the weights are here, verified and kept, and the final snapshot is
  // complete or will never be.
  void Tick(Micros now);

  // A server that was asked may be gone.
  void OnView(Micros now) { again_at_ = now; }
  void StartGeneration();

 private:
  void AskForMissing(Micros now);
  bool AreKept(Micros now);

  const JobPlan& plan_;
  const Parts parts_;
  std::optional<FloatBuffer> weights_;  // the flat parameter vector
  std::vector<bool> collected_;         // by shard
  uint32_t pulled_end_ = 0;             // shards below it are collected or asked for
  Micros silence_max_{0};               // before the missing ones are asked for again
  Micros again_at_{0};
  Micros collecting_since_{0};
  std::optional<Micros> unkept_since_;  // the weights are here and cannot be written
  Micros keep_at_{0};                   // when that is tried again
};

}  // namespace pando
