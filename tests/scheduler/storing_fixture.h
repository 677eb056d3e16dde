// A run whose servers store snapshots.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/scheduler/scheduler_fixture.h"

namespace pando {

inline JobPlan StoringPlan(uint32_t workers = 2, uint32_t replicas = 2) {
  JobPlan plan = MakePlan(workers, 2, replicas);
  plan.job.snapshot_every = 10;
  plan.job.eval_every_epochs = 0;
  return plan;
}

class StoringFixture : public Fixture {
 public:
  explicit StoringFixture(JobPlan plan_in = StoringPlan()) : Fixture(std::move(plan_in)) {
    snapshot_dir = "/snapshots";
    StartScheduler();
  }
  // Steps up to here are made; their rows are known.
  void MakeTo(uint64_t version) {
    std::vector<StepMetrics> rows;
    for (uint64_t step = made_; step < version; ++step) rows.push_back({.step = Step(step)});
    const PeerId lane = scheduler->view().shards.back().primary;
    From(lane.incarnation.value(), Progress{Version(version), rows}, lane.lane);
    Commit(version);
    made_ = std::max(made_, version);
  }
  // `forger`: this server has stored other bits.
  void Store(uint64_t version, const std::string& failure = "", uint64_t forger = 0) {
    const auto& shards = scheduler->view().shards;
    for (uint32_t s = 0; s < shards.size(); ++s) {
      const std::string file = "v" + std::to_string(version);
      for (const PeerId& backup : shards[s].in_sync_backups)
        From(backup.incarnation.value(),
             SnapshotStored{{{ShardId(s), Version(version), 1, "", ""}}}, backup.lane);
      const uint64_t who = shards[s].primary.incarnation.value();
      const uint64_t hash = who == forger ? 2 : 1;
      From(who, SnapshotStored{{{ShardId(s), Version(version), hash, file, s == 0 ? failure : ""}}},
           shards[s].primary.lane);
    }
  }

 private:
  uint64_t made_ = 0;
};

}  // namespace pando
