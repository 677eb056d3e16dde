// EngineDecisions decides with which engines of NVIDIA's libraries each kind of GPU worker computes
// (P39): the first proposal of a kind, for the whole run. Part of the scheduler core. Threads:
// none.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scheduler/run_facts.h"

namespace pando {

class EngineDecisions {
 public:
  static constexpr size_t kKindsMax = 64;

  EngineDecisions(RunFacts& run, const SchedulerOptions& options);  // `run` outlives this

  // Answers with what is decided for the worker's kind, which may be this proposal. The answer
  // leaves after the journal has it (P25).
  void OnProposal(Micros now, const PeerId& from, const EngineProposal& proposal);
  void Tick(Micros now);

  // By kind.
  const std::vector<KindEngines>& all() const { return decided_; }
  // What the journal gets: all of them.
  std::vector<KindEngines> ForJournal() const;

 private:
  const KindEngines* Find(const std::string& kind) const;
  bool Decide(Micros now, const PeerId& from, const EngineProposal& proposal);

  RunFacts& run_;
  std::vector<KindEngines> decided_;
  // kAnnounceEnginesBeforeJournal: the kind that is not written yet, and when it is.
  std::string held_back_;
  std::optional<Micros> written_at_;
};

}  // namespace pando
