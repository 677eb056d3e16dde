#include "bench/cpp/push_pull/load.h"

#include <string>

#include "common/check.h"

namespace pando::bench {
namespace {

constexpr uint64_t kEndlessSteps = uint64_t{1} << 40;

// The last shard ends with the metric tensor, as in every model.
TensorLayout MakeLayout(const Load& load) {
  const uint64_t shard_floats = load.shard_bytes / sizeof(float);
  PANDO_CHECK(shard_floats % TensorLayout::kAlignFloats == 0 &&
              shard_floats > TensorLayout::kAlignFloats);
  const uint32_t shard_count = load.shards_per_server * load.servers;
  std::vector<TensorSpec> specs;
  for (uint32_t i = 0; i < shard_count; ++i) {
    const bool is_last = i + 1 == shard_count;
    specs.push_back({.name = "t" + std::to_string(i),
                     .shape = {shard_floats - (is_last ? TensorLayout::kAlignFloats : 0)}});
  }
  specs.push_back(MetricTensorSpec());
  return TensorLayout(std::move(specs));
}

Job MakeJob(const Load& load) {
  Job job;
  job.steps = kEndlessSteps;
  job.global_batch = job.micro_batches = load.workers;
  job.optimizer.lr = -kAddedPerStep;
  job.optimizer.momentum = load.has_momentum ? 0.9 : 0.0;
  job.eval_every_epochs = 0;
  job.snapshot_every = 0;
  job.replicas = 1;
  job.workers = load.workers;
  job.servers = load.servers;
  return job;
}

}  // namespace

JobPlan MakePlan(const Load& load) {
  JobPlan plan(MakeJob(load), DataFacts{.train_samples = load.workers}, MakeLayout(load));
  plan.shards = ShardPlan(plan.layout, {.target_bytes = load.shard_bytes});
  plan.pushes = plan.pulls = PayloadPlan({}, plan.layout, plan.shards);
  PANDO_CHECK(plan.shards.shard_count() == load.shards_per_server * load.servers);
  return plan;
}

}  // namespace pando::bench
