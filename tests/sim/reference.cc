#include "tests/sim/reference.h"

#include <algorithm>

#include "common/hash.h"
#include "common/tensor_init.h"
#include "scheduler/schedule.h"
#include "server/optimizer.h"
#include "tests/sim/world.h"

namespace pando::sim {
namespace {

float NoiseOf(uint64_t key) {  // in [-1, 1), all 24 bits in use, so that sums round
  key = (key ^ key >> 30) * 0xbf58476d1ce4e5b9;
  key ^= key >> 27;
  return static_cast<float>(static_cast<int32_t>(key >> 32)) * 0x1.0p-31f;
}

}  // namespace

JobPlan DrawPlan(Chance& chance) {
  Job job;
  job.seed = chance.Next();
  job.steps = chance.Between(2, 8);
  job.micro_batches = static_cast<uint32_t>(chance.Between(1, 9));
  job.global_batch = job.micro_batches + chance.Below(8);
  job.optimizer.kind = static_cast<OptimizerKind>(chance.Below(3));
  job.optimizer.momentum = chance.OneIn(0.5) ? 0.9 : 0.0;
  job.optimizer.lr = 0.05;
  job.schedule.kind = chance.OneIn(0.5) ? ScheduleKind::kOneCycle : ScheduleKind::kConstant;
  job.eval_every_epochs = chance.Below(3);
  job.workers = static_cast<uint32_t>(chance.Between(1, 4));
  job.servers = static_cast<uint32_t>(chance.Between(1, 3));
  DataFacts data;
  data.train_samples = job.global_batch * chance.Between(1, 3) + chance.Below(job.global_batch);
  data.test_samples = chance.Below(3) * 1300;
  std::vector<TensorSpec> specs;
  for (uint64_t i = 0; i < chance.Between(1, 3); ++i) {
    specs.push_back({.name = "layer" + std::to_string(i),
                     .shape = {chance.Between(1, 1800)},
                     .init = InitKind::kUniform,
                     .init_bound = 0.5f});
  }
  specs.push_back({.name = "last", .shape = {1024}, .init = InitKind::kUniform, .init_bound = 1});
  specs.push_back(MetricTensorSpec());
  return JobPlan(job, data, TensorLayout(std::move(specs)));
}

uint64_t DigestOfRead(const JobPlan& plan, const std::vector<std::span<const float>>& shards) {
  uint64_t digest = 0;
  for (uint32_t s = 0; s < shards.size(); ++s) {
    if (ShardId(s) != plan.metric_shard()) digest = Hash64(std::as_bytes(shards[s]), digest);
  }
  return digest;
}

std::vector<float> LeafGradient(const JobPlan& plan, uint64_t digest, Step step, MicroBatch m) {
  std::vector<float> gradient(plan.layout.float_count());
  const uint64_t key = digest ^ step.value() << 40 ^ uint64_t { m.value() } << 32;
  for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = NoiseOf(key + i);
  return gradient;
}

std::vector<float> NodeGradient(const JobPlan& plan, uint64_t digest, Step step, TreeNode node) {
  const MicroBatchTree tree = plan.steps.Tree(step);
  if (auto children = tree.ChildrenOf(node)) {
    std::vector<float> sum = NodeGradient(plan, digest, step, children->left);
    const std::vector<float> right = NodeGradient(plan, digest, step, children->right);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + right[i];
    return sum;
  }
  const MicroBatchRange range = tree.Range(node);
  uint32_t m = range.first;
  while (!tree.IsPresent(MicroBatch(m))) ++m;
  return LeafGradient(plan, digest, step, MicroBatch(m));
}

EvaluationResult EvaluateSliceOf(uint64_t digest, const Evaluate& request) {
  const uint64_t samples = request.last_sample - request.first_sample;
  const uint64_t mixed = Hash64(std::as_bytes(std::span(&request.slice, 1)), digest);
  return {request.version, request.slice, samples, mixed % (samples + 1),
          static_cast<double>(mixed % 1000) / 7.0};
}

Reference::Reference(const JobPlan& plan) : plan_(plan) {
  const Optimizer optimizer(plan.job.optimizer, plan.layout);
  const Schedule schedule(plan.job.optimizer, plan.job.schedule, plan.steps.step_count());
  const size_t size = plan.layout.float_count();
  const ShardRange whole{0, size};
  FloatBuffer state(size * optimizer.state_count());
  versions_.emplace_back(size);
  InitRange(plan.layout, plan.job.seed, whole, versions_[0].span());
  for (Step step(0); step.value() < plan.steps.step_count(); step = NextStep(step)) {
    const std::vector<float> root =
        NodeGradient(plan, DigestAt(VersionReadBy(step)), step, MicroBatchTree::kRoot);
    FloatBuffer next(size);
    optimizer.Apply({.range = whole,
                     .parameters = versions_.back().span(),
                     .gradient = root,
                     .gradient_scale = 1.0f / static_cast<float>(plan.steps.SampleCount(step)),
                     .scalars = schedule.At(step),
                     .is_first_step = step == Step(0),
                     .state = state.span(),
                     .parameters_out = next.span(),
                     .state_out = state.span()});
    versions_.push_back(std::move(next));
  }
}

std::span<const float> Reference::ShardAt(ShardId shard, Version version) const {
  const ShardRange& range = plan_.shards.range(shard);
  return FlatAt(version).subspan(range.first, range.size());
}

uint64_t Reference::DigestAt(Version version) const {
  std::vector<std::span<const float>> shards;
  for (uint32_t s = 0; s < plan_.shards.shard_count(); ++s)
    shards.push_back(ShardAt(ShardId(s), version));
  return DigestOfRead(plan_, shards);
}

}  // namespace pando::sim
