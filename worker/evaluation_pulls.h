// EvaluationPulls: how a session evaluates in a run with servers: the shards' lanes have the
// parameters. Used by the session. Threads: none.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "worker/evaluation.h"
#include "worker/lanes.h"
#include "worker/parameters.h"

namespace pando {

class EvaluationPulls : public EvaluationPort {
 public:
  // All outlive it.
  EvaluationPulls(Parameters& parameters, Lanes& lanes) : parameters_(parameters), lanes_(lanes) {}

  void Pull(Micros now, const std::vector<PullItem>& items) override {
    std::map<PeerId, pando::Pull> pulls;
    for (const PullItem& item : items) pulls[lanes_.primary(item.shard)].items.push_back(item);
    for (auto& [lane, pull] : pulls) lanes_.Ask(now, lane, std::move(pull));
  }
  void OnCalledOff(Version version) override {
    parameters_.OnGone(ParameterUse::kEvaluation, version);
  }
  bool MayReport(const EvaluationResult&) const override { return true; }

 private:
  Parameters& parameters_;
  Lanes& lanes_;
};

}  // namespace pando
