// RunObserver: what the scheduler core tells the recorder of the run folder.
#pragma once

#include <string>

#include "common/float_buffer.h"
#include "common/status.h"
#include "proto/outbox.h"
#include "scheduler/journal.h"

namespace pando {

// Something that happened to the run, for events.jsonl and the log.
struct RunEvent {
  std::string name;         // "registered", "view", "training", "dead", "failed", ...
  std::string node;         // "worker 1", or empty
  std::string text;         // for people
  bool is_notable = false;  // worth a line on the terminal
};

// Calls come from the core, in order. Evaluations and snapshots follow after they are in the
// journal.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void OnEvent(Micros now, const RunEvent& event) = 0;
  // Every step of the job once, ascending, over all lives of the scheduler (Options::next_row). A
  // step is left out only if its row was lost with a server.
  virtual void OnStepMetrics(Micros now, const StepMetrics& metrics) = 0;
  // Those of earlier lives are in the SchedulerState.
  virtual void OnEvaluation(Micros now, const EvaluationSummary& summary) = 0;
  // The results of all versions above `last_good` are withdrawn: a wrong gradient made them (P41).
  virtual void OnEvaluationsDropped(Micros now, Version last_good) = 0;
  // A new fault, or news of a known one; FaultRecord::id says which.
  virtual void OnFault(Micros now, const FaultRecord& fault) = 0;
  // All shards report that they have stored it.  Returns ok if its files are where the run will
  // look for them.
  virtual Status OnSnapshotRipe(Micros now, const SnapshotManifest& manifest) = 0;
  // A snapshot is complete.
  virtual void OnSnapshot(Micros now, const SnapshotManifest& manifest) = 0;
  // Its files are not needed any more. A snapshot that was given up has shards without a file.
  virtual void OnSnapshotDropped(Micros now, const SnapshotManifest& manifest) = 0;
  // It cannot be read and will not be used again; its files stay as they are.
  virtual void OnSnapshotForgotten(Micros now, const SnapshotRef& snapshot) = 0;
  // The flat parameter vector of the run's last version.  Returns ok once it is kept. The call is
  // repeated until then, and after a restart that came before the end was in the journal.
  virtual Status OnFinalWeights(Micros now, Version version, const FloatBuffer& flat) = 0;
};

}  // namespace pando
