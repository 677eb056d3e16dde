#include "tests/sim/reference.h"

#include <algorithm>

#include "common/hash.h"
#include "common/tensor_init.h"
#include "scheduler/schedule.h"
#include "server/optimizer.h"

namespace pando::sim {
namespace {

// In [-1, 1), all 24 bits in use, so that sums round. 32-bit steps, which compilers pack.
float NoiseOf(uint32_t key) {
  key ^= key >> 16;
  key *= 0x7feb352d;
  key ^= key >> 15;
  key *= 0x846ca68b;
  key ^= key >> 16;
  return static_cast<float>(static_cast<int32_t>(key)) * 0x1.0p-31f;
}

}  // namespace

uint64_t DigestOfRead(const JobPlan& plan, const std::vector<std::span<const float>>& shards) {
  uint64_t digest = 0;
  for (uint32_t s = 0; s < shards.size(); ++s) {
    if (ShardId(s) != plan.metric_shard()) digest = Hash64(std::as_bytes(shards[s]), digest);
  }
  return digest;
}

std::vector<float> LeafGradient(const JobPlan& plan, uint64_t digest, Step step, MicroBatch m) {
  std::vector<float> gradient(plan.layout.float_count());
  const uint64_t parts[] = {digest, step.value(), m.value()};
  const auto key = static_cast<uint32_t>(Hash64(std::as_bytes(std::span(parts))));
  for (uint32_t i = 0; i < gradient.size(); ++i) gradient[i] = NoiseOf(key + i);
  return gradient;
}

std::vector<float> NodeGradient(const MicroBatchTree& tree, TreeNode node, const LeafOf& leaf) {
  if (auto children = tree.ChildrenOf(node)) {
    std::vector<float> sum = NodeGradient(tree, children->left, leaf);
    const std::vector<float> right = NodeGradient(tree, children->right, leaf);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + right[i];
    return sum;
  }
  const MicroBatchRange range = tree.Range(node);
  uint32_t m = range.first;
  while (!tree.IsPresent(MicroBatch(m))) ++m;
  return leaf(MicroBatch(m));
}

EvaluationResult EvaluateSliceOf(uint64_t digest, const Evaluate& request) {
  const uint64_t samples = request.last_sample - request.first_sample;
  const uint64_t mixed = Hash64(std::as_bytes(std::span(&request.slice, 1)), digest);
  return {request.version, request.slice, samples, mixed % (samples + 1),
          static_cast<double>(mixed % 1000) / 7.0};
}

EvaluationTotals EvaluateAll(const JobPlan& plan, uint64_t digest, Version version) {
  EvaluationTotals totals;
  for (uint64_t first = 0, slice = 0; first < plan.data.test_samples;
       first += kEvaluationSliceSamples, ++slice) {
    const uint64_t last = std::min(first + kEvaluationSliceSamples, plan.data.test_samples);
    const EvaluationResult result =
        EvaluateSliceOf(digest, {version, static_cast<uint32_t>(slice), first, last});
    totals.sample_count += result.sample_count;
    totals.correct_count += result.correct_count;
    totals.loss_sum += result.loss_sum;
  }
  return totals;
}

Reference::Reference(const JobPlan& plan)
    : plan_(plan), state_count_(OptimizerStateCount(plan.job.optimizer)) {
  const Optimizer optimizer(plan.job.optimizer, plan.layout);
  const Schedule schedule(plan.job.optimizer, plan.job.schedule, plan.steps.step_count());
  const size_t size = plan.layout.float_count();
  const ShardRange whole{0, size};
  FloatBuffer state(size * optimizer.state_count());
  versions_.emplace_back(size);
  InitRange(plan.layout, plan.job.seed, whole, versions_[0].span());
  NoteState(state.span());
  for (Step step(0); step.value() < plan.steps.step_count(); step = NextStep(step)) {
    const uint64_t digest = DigestAt(VersionReadBy(step));
    const std::vector<float> root =
        NodeGradient(plan.steps.Tree(step), MicroBatchTree::kRoot,
                     [&](MicroBatch m) { return LeafGradient(plan, digest, step, m); });
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
    NoteState(state.span());
  }
}

void Reference::NoteState(std::span<const float> state) {
  std::vector<uint64_t>& hashes = state_hashes_.emplace_back();
  for (const ShardRange& range : plan_.shards.ranges()) {
    uint64_t hash = 0;
    for (uint32_t slot = 0; slot < state_count_; ++slot) {
      const size_t first = slot * plan_.layout.float_count() + range.first;
      hash = Hash64(std::as_bytes(state.subspan(first, range.size())), hash);
    }
    hashes.push_back(hash);
  }
}

uint64_t Reference::HashOfState(std::span<const float> state) const {
  if (state_count_ == 0) return state.empty() ? 0 : 1;
  uint64_t hash = 0;
  const size_t size = state.size() / state_count_;
  for (uint32_t slot = 0; slot < state_count_; ++slot) {
    hash = Hash64(std::as_bytes(state.subspan(slot * size, size)), hash);
  }
  return hash;
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
