#include "train/local_update.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/written_sum.h"

namespace pando {
namespace {

// Shard 0 holds 1024 weights, shard 1 the metrics. A step has 4 samples.
JobPlan MakePlan(const OptimizerOptions& options) {
  Job job;
  job.steps = 8;
  job.global_batch = 4;
  job.micro_batches = 2;
  job.optimizer = options;
  const DataFacts data{.train_samples = 4, .test_samples = 10};
  return JobPlan(job, data, TensorLayout({{.name = "w", .shape = {1024}}, MetricTensorSpec()}));
}

struct LocalTraining {
  explicit LocalTraining(const OptimizerOptions& options)
      : plan(MakePlan(options)), store(plan.shards, {.versions_kept = 2}, held_bytes) {
    const SharedBuffer first = store.Writable(Version(0));
    std::ranges::fill(first->span(), 1.0f);
    for (uint32_t s = 0; s < plan.shards.shard_count(); ++s) store.Arrived(ShardId(s), Version(0));
  }
  // Hands over a root whose mean gradient is `gradient` everywhere.
  void Apply(uint32_t shard, uint64_t step, float gradient) {
    const auto sums = std::make_shared<FloatBuffer>(plan.shards.range(ShardId(shard)).size());
    std::ranges::fill(sums->span(), 4 * gradient);
    update.Apply({Step(step), ShardId(shard), ToBlob(sums)},
                 [this](Step made_by, ShardId id, const SharedBuffer& next) {
                   store.Arrived(id, VersionMadeBy(made_by));
                   made.push_back(id);
                   newest = next;
                 });
  }

  const JobPlan plan;
  HeldBytes held_bytes;
  ParameterStore store;
  LocalUpdate update{plan, store, {}};
  std::vector<ShardId> made;  // in their order
  SharedBuffer newest;
};

TEST_CASE("a shard whose update needs only its own gradient is made at once") {
  LocalTraining training({.lr = 0.5});
  training.Apply(1, 0, 0.0f);
  CHECK(training.made == std::vector{ShardId(1)});
  training.Apply(0, 0, 0.5f);
  CHECK(training.made == std::vector{ShardId(1), ShardId(0)});
  CHECK(training.newest->data()[0] == 1.0f - 0.5f * 0.5f);
  CHECK(training.newest->data()[1023] == 1.0f - 0.5f * 0.5f);
}

TEST_CASE("with clipping roots wait for the last norm, step after step") {
  LocalTraining training({.lr = 0.5, .clip_norm = 2.0});
  const auto factor = static_cast<float>(2.0 / (8.0 + 1e-6));  // norm: 0.25 · √1024 = 8
  float expected = 1.0f;
  for (uint64_t step : {0u, 1u}) {
    training.made.clear();
    training.Apply(0, step, 0.25f);
    CHECK(training.made.empty());
    training.Apply(1, step, 0.0f);
    CHECK(training.made == std::vector{ShardId(0), ShardId(1)});
    expected -= 0.5f * (0.25f * factor);
    CHECK(training.newest->data()[5] == expected);
    CHECK(ReadSum(training.update.states()[0].span().last(ExactSum::kFloats)) == 64.0);
  }
}

TEST_CASE("a step goes on from the state that a resumed run writes") {
  LocalTraining training({.lr = 0.5, .momentum = 0.5});
  training.Apply(0, 0, 1.0f);
  training.Apply(1, 0, 0.0f);
  std::ranges::fill(training.update.states()[0].span(), 4.0f);
  training.Apply(0, 1, 1.0f);
  // 1 − 0.5 · 1 in step 0; the momentum is then 0.5 · 4 + 1.
  CHECK(training.newest->data()[0] == 0.5f - 0.5f * 3.0f);
}

}  // namespace
}  // namespace pando
