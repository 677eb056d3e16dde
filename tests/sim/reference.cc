#include "tests/sim/reference.h"

#include <algorithm>
#include <cmath>

#include "common/hash.h"
#include "plan/tensor_init.h"

namespace pando::sim {
namespace {

// In [-1, 1), all 24 bits in use, so that sums round. 32-bit steps, which compilers pack.
float Noise(uint32_t key) {
  key ^= key >> 16;
  key *= 0x7feb352d;
  key ^= key >> 15;
  key *= 0x846ca68b;
  key ^= key >> 16;
  return static_cast<float>(static_cast<int32_t>(key)) * 0x1.0p-31f;
}

}  // namespace

Blob Sent(const PayloadPlan& payloads, ShardId shard, std::span<const float> floats) {
  const auto sent = std::make_shared<FloatBuffer>(payloads.PayloadBytes(shard) / sizeof(float));
  if (payloads.is_exact()) {
    std::ranges::copy(floats, sent->data());
  } else {
    payloads.codec(shard)->Encode(floats, std::as_writable_bytes(sent->span()));
  }
  return ToBlob(sent);
}

std::vector<float> Received(const PayloadPlan& payloads, ShardId shard, const Blob& payload) {
  if (payloads.is_exact()) return {payload.floats().begin(), payload.floats().end()};
  std::vector<float> floats(payloads.codec(shard)->float_count());
  payloads.codec(shard)->Decode(payload.bytes(), floats);
  return floats;
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
  const uint64_t parts[] = {digest, step.value(), m.value()};
  const auto key = static_cast<uint32_t>(Hash64(std::as_bytes(std::span(parts))));
  for (uint32_t i = 0; i < gradient.size(); ++i) gradient[i] = Noise(key + i);
  // With loss scaling one micro-batch in ten overflows somewhere, its metrics aside.
  const size_t metrics = plan.layout.offset(plan.layout.tensor_count() - 1);
  if (plan.job.optimizer.loss_scale.is_on && key % 10 == 0) gradient[key / 10 % metrics] = INFINITY;
  return gradient;
}

std::vector<float> NodeGradient(const MicroBatchTree& tree, TreeNode node, const LeafOf& leaf) {
  if (auto children = tree.FindChildren(node)) {
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

EvaluationResult MakeEvaluation(uint64_t digest, const Evaluate& request) {
  const uint64_t samples = request.last_sample - request.first_sample;
  const uint64_t mixed = Hash64(std::as_bytes(std::span(&request.slice, 1)), digest);
  const uint64_t correct = mixed % (samples + 1);
  const auto count = [](uint64_t n) { return static_cast<uint32_t>(n); };
  return {.version = request.version,
          .slice = request.slice,
          .sample_count = samples,
          .correct_count = correct,
          .loss_sum = static_cast<double>(mixed % 1000) / 7.0,
          .top5_count = samples,
          .confusion = {{0, 0, count(correct)}, {0, 1, count(samples - correct)}},
          .sums = {static_cast<double>(correct)}};
}

std::string StopText(const JobPlan& plan, uint64_t digest) {
  return plan.job.eval_report == ReportUse::kDecides && digest % 8 == 0 ? "good enough" : "";
}

EvaluationTotals EvaluateAll(const JobPlan& plan, uint64_t digest, Version version) {
  EvaluationTotals totals;
  for (uint64_t first = 0, slice = 0; first < plan.data.test_samples;
       first += kEvaluationSliceSamples, ++slice) {
    const uint64_t last = std::min(first + kEvaluationSliceSamples, plan.data.test_samples);
    const EvaluationResult result =
        MakeEvaluation(digest, {version, static_cast<uint32_t>(slice), first, last});
    totals.sample_count += result.sample_count;
    totals.correct_count += result.correct_count;
    totals.loss_sum += result.loss_sum;
  }
  return totals;
}

Reference::Reference(const JobPlan& plan) : plan_(plan) {
  const Optimizer optimizer(plan.job.optimizer, plan.layout);
  const PartialPlan partial_plan(plan.job.optimizer, plan.layout, plan.shards);
  const Schedule schedule(plan.job.optimizer, plan.job.schedule, plan.steps.step_count());
  const size_t size = plan.layout.float_count();
  versions_.emplace_back(size);
  InitRange(plan.layout, plan.job.seed, {0, size}, versions_[0].span());
  for (const ShardRange& range : plan.shards.ranges())
    states_.emplace_back(optimizer.state_floats(range) + plan.steps.staleness() * range.size());
  NoteStates();
  for (Step step(0); step.value() < plan.steps.step_count(); step = NextStep(step)) {
    versions_.push_back(Next(optimizer, partial_plan, schedule, step));
    NoteStates();
  }
  FindFinalVersion();
}

// Patience and reports alone, counted by hand: the simulated jobs have no min_delta.
void Reference::FindFinalVersion() {
  final_version_ = plan_.steps.final_version();
  const bool has_patience = plan_.job.early_stop_patience != 0 && plan_.data.test_samples != 0;
  uint64_t best = 0;
  Version version = plan_.NextEvaluation(Version(0));
  uint32_t since_best = 0;
  for (bool is_first = true;; is_first = false) {
    const uint64_t digest = DigestAt(version);
    const uint64_t correct = EvaluateAll(plan_, digest, version).correct_count;
    since_best = is_first || correct > best ? 0 : since_best + 1;
    best = std::max(best, correct);
    const bool is_enough = has_patience && since_best == plan_.job.early_stop_patience;
    if (is_enough || !StopText(plan_, digest).empty() || version == final_version_) break;
    version = plan_.NextEvaluation(version);
  }
  final_version_ = version;
}

FloatBuffer Reference::Next(const Optimizer& optimizer, const PartialPlan& partial_plan,
                            const Schedule& schedule, Step step) {
  const uint64_t digest = TrainingDigestAt(plan_.steps.VersionReadBy(step));
  const auto leaf = [&](MicroBatch m) {
    std::vector<float> gradient = LeafGradient(plan_, digest, step, m);
    for (uint32_t s = 0; s < plan_.shards.shard_count(); ++s) {
      const ShardRange& range = plan_.shards.range(ShardId(s));
      const auto floats = std::span(gradient).subspan(range.first, range.size());
      const Blob sent = Sent(plan_.pushes, ShardId(s), floats);
      std::ranges::copy(Received(plan_.pushes, ShardId(s), sent), floats.begin());
    }
    return gradient;
  };
  const std::vector<float> root = NodeGradient(plan_.steps.Tree(step), MicroBatchTree::kRoot, leaf);
  FloatBuffer next(plan_.layout.float_count());
  std::vector<Optimizer::Update> updates;
  std::vector<std::vector<float>> partials;
  for (uint32_t s = 0; s < plan_.shards.shard_count(); ++s) {
    const ShardRange& range = plan_.shards.range(ShardId(s));
    const std::span<float> state = states_[s].span().first(optimizer.state_floats(range));
    updates.push_back({.range = range,
                       .parameters = ShardAt(ShardId(s), VersionUpdatedBy(step)),
                       .read = ShardAt(ShardId(s), plan_.steps.VersionReadBy(step)),
                       .gradient = std::span(root).subspan(range.first, range.size()),
                       .gradient_scale = 1.0f / static_cast<float>(plan_.steps.SampleCount(step)),
                       .scalars = schedule.At(step),
                       .is_first_step = step == Step(0),
                       .state = state,
                       .parameters_out = next.span().subspan(range.first, range.size()),
                       .state_out = state});
    std::vector<float>& values = partials.emplace_back(optimizer.partial_count(range));
    if (!partial_plan.is_empty()) optimizer.MakePartials(updates.back(), values);
  }
  PartialTotal total;
  for (uint32_t s = 0; s < updates.size() && !partial_plan.is_empty(); ++s)
    partial_plan.AddTo(&total, ShardId(s), partials[s]);
  for (uint32_t s = 0; s < updates.size(); ++s) {
    std::vector<float> factors;
    if (!partial_plan.is_empty())
      factors = *partial_plan.Combine(ShardId(s), total, [&](ShardId id) {
        return std::span<const float>(partials[id.value()]);
      });
    updates[s].factors = factors;
    optimizer.Apply(updates[s]);
    std::ranges::copy(partials[s], updates[s].state_out.last(partials[s].size()).begin());
    // With staleness, the parameters of the version before are the state's tail.
    const std::span<float> tail = states_[s].span().subspan(updates[s].state_out.size());
    if (!tail.empty()) std::ranges::copy(updates[s].parameters, tail.begin());
  }
  return next;
}

std::vector<float> Reference::ShownAt(ShardId shard, Version version) const {
  return Received(plan_.pulls, shard, Sent(plan_.pulls, shard, ShardAt(shard, version)));
}

uint64_t Reference::TrainingDigestAt(Version version) const {
  std::vector<std::vector<float>> shards;
  for (uint32_t s = 0; s < plan_.shards.shard_count(); ++s)
    shards.push_back(ShownAt(ShardId(s), version));
  return DigestOfRead(plan_, {shards.begin(), shards.end()});
}

void Reference::NoteStates() {
  std::vector<uint64_t>& hashes = state_hashes_.emplace_back();
  for (const FloatBuffer& state : states_) hashes.push_back(HashOfState(state.span()));
}

uint64_t Reference::HashOfState(std::span<const float> state) {
  return Hash64(std::as_bytes(state));
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
