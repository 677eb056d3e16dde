// EvaluationPulls: how a session evaluates in a run with servers: the shards' lanes have the
// parameters, and a result that replaced pictures stand in waits until the scheduler knows those.
// Used by the session. Threads: none.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "worker/bad_picture_reports.h"
#include "worker/evaluation.h"
#include "worker/lanes.h"
#include "worker/parameters.h"

namespace pando {

class EvaluationPulls : public EvaluationPort {
 public:
  // All outlive it.
  EvaluationPulls(const BadPictureReports& bad_pictures, Parameters& parameters, Lanes& lanes)
      : bad_pictures_(bad_pictures), parameters_(parameters), lanes_(lanes) {}

  void Pull(Micros now, const std::vector<PullItem>& items) override {
    std::map<PeerId, pando::Pull> pulls;
    for (const PullItem& item : items) pulls[lanes_.primary(item.shard)].items.push_back(item);
    for (auto& [lane, pull] : pulls) lanes_.Ask(now, lane, std::move(pull));
  }
  void OnCalledOff(Version version) override {
    parameters_.OnGone(ParameterUse::kEvaluation, version);
  }
  bool MayReport(const EvaluationResult&) const override { return bad_pictures_.is_settled(); }

 private:
  const BadPictureReports& bad_pictures_;
  Parameters& parameters_;
  Lanes& lanes_;
};

}  // namespace pando
