// A job of two shards for the server's tests, and snapshots in memory.
#pragma once

#include <utility>
#include <vector>

#include "plan/job_plan.h"
#include "proto/messages.h"
#include "server/snapshot_port.h"

namespace pando {

class MemorySnapshots : public SnapshotPort {
 public:
  void Store(StoreRequest request) override { stores.push_back(std::move(request)); }
  void Load(LoadRequest request) override { loads.push_back(request); }
  std::vector<StoreRequest> stores;
  std::vector<LoadRequest> loads;
};

// Shard 0 holds 1024 weights, shard 1 the metrics.
inline JobPlan TwoShardPlan(Job job) {
  job.global_batch = 4;
  job.micro_batches = 2;
  job.optimizer.lr = 0.5;
  job.optimizer.momentum = 0.9;
  const DataFacts data{.train_samples = 4, .test_samples = 10};  // one step an epoch
  return JobPlan(
      job, data,
      TensorLayout({{.name = "w", .shape = {1024}, .init = InitKind::kOne}, MetricTensorSpec()}));
}

inline Job MakeJob(uint64_t steps) {
  Job job;
  job.steps = steps;
  job.eval_every_epochs = 0;
  job.snapshot_every = 0;
  return job;
}

inline Job ClippingJob() {
  Job job = MakeJob(20);
  job.optimizer.clip_norm = 2;
  return job;
}

inline Job SnapshotJob() {
  Job job = MakeJob(20);
  job.snapshot_every = 2;
  return job;
}

template <class M>
bool Is(const Envelope& envelope) {
  return std::holds_alternative<M>(envelope.message);
}

}  // namespace pando
