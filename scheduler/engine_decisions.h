// EngineDecisions decides with which engines of NVIDIA's libraries each kind of GPU worker computes
// (P39): the first proposal of a kind, for the whole run. Part of the scheduler core. Threads:
// none.
#pragma once

#include <map>
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

  // Whether a member was asked to measure and has not proposed anything yet.
  bool IsMeasuring() const;
  // By kind.
  const std::vector<KindEngines>& all() const { return decided_; }

 private:
  const KindEngines* Find(const std::string& kind) const;
  void Decide(Micros now, const PeerId& from, const EngineProposal& proposal);
  std::string ReasonToRefuse(const EngineProposal& proposal) const;

  RunFacts& run_;
  std::vector<KindEngines> decided_;
  const CheckEngines check_;
  std::map<Incarnation, std::string> asked_;  // to measure: members' kinds
};

}  // namespace pando
