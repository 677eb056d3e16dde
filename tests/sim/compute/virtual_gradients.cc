#include "tests/sim/compute/virtual_gradients.h"

#include <algorithm>
#include <span>

#include "common/hash.h"
#include "tests/sim/reference.h"

namespace pando::sim {

void VirtualGradients::BeginStep(Step step, const std::vector<MicroBatch>& micro_batches) {
  for (MicroBatch m : micro_batches) {
    if (flips_bit_(step, m)) flipped_ = std::pair(step, m);
  }
}

std::vector<float> VirtualGradients::Make(Step step, MicroBatch m, uint64_t digest) const {
  std::vector<float> gradient = LeafGradient(plan_, digest, step, m);
  if (flipped_ == std::pair(step, m)) gradient[0] = 1.0f - gradient[0];
  return gradient;
}

std::vector<VirtualGradients::NodeSum> VirtualGradients::SumNodes(
    Step step, const std::vector<MicroBatch>& micro_batches, uint64_t digest) const {
  const auto leaf = [&](MicroBatch m) { return Make(step, m, digest); };
  const MicroBatchTree tree = plan_.steps.Tree(step);
  std::vector<NodeSum> sums;
  for (TreeNode node : plan_.NodesToPush(step, micro_batches)) {
    auto sum = std::make_shared<FloatBuffer>(plan_.layout.float_count());
    std::ranges::copy(NodeGradient(tree, node, leaf), sum->data());
    sums.emplace_back(node, std::move(sum));
  }
  return sums;
}

GradientHashed VirtualGradients::Hash(Step step, MicroBatch m, uint64_t digest) const {
  const std::vector<float> gradient = Make(step, m, digest);
  return {step, m, std::max<uint64_t>(1, Hash64(std::as_bytes(std::span(gradient))))};
}

std::vector<GradientHashed> VirtualGradients::HashVerified(
    Step step, const std::vector<MicroBatch>& micro_batches, uint64_t digest) const {
  std::vector<GradientHashed> hashes;
  for (MicroBatch m : micro_batches) {
    if (plan_.IsVerified(step, m)) hashes.push_back(Hash(step, m, digest));
  }
  return hashes;
}

Blob VirtualGradients::Encode(Step step, const NodeSum& sum, ShardId shard) {
  const ShardRange& range = plan_.shards.range(shard);
  const auto floats = sum.second->span().subspan(range.first, range.size());
  if (!plan_.pushes.has_feedback()) return Share(Sent(plan_.pushes, shard, floats));
  const MicroBatch m(plan_.steps.Tree(step).Range(sum.first).first);
  const auto encoded =
      std::make_shared<FloatBuffer>(plan_.pushes.PayloadBytes(shard) / sizeof(float));
  feedback_.Encode(step, m, shard, floats, std::as_writable_bytes(encoded->span()));
  return Share(ToBlob(encoded));
}

Blob VirtualGradients::Share(const Blob& payload) const {
  const auto floats = payload.floats();
  auto buffer = std::make_shared<FloatBuffer>(buffers_.make(floats.size()));
  std::ranges::copy(floats, buffer->data());
  return ToBlob(std::move(buffer));
}

}  // namespace pando::sim
