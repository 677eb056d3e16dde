#include "train/tree_sum.h"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <thread>

#include "common/buffer_pool.h"

namespace pando {
namespace {

// Two shards of 1,600 and 16 floats: a large tensor and a small one.
TensorLayout TwoShardLayout() {
  return TensorLayout({{.name = "w", .shape = {1600}}, MetricTensorSpec()});
}

// The definition (P2): a node's sum is left + right, an absent child is passed through.
std::vector<float> NaiveSum(const MicroBatchTree& tree, TreeNode node,
                            const std::vector<std::vector<float>>& leaves) {
  auto children = tree.FindChildren(node);
  if (!children.has_value()) {
    const MicroBatchRange range = tree.Range(node);
    for (uint32_t m = range.first; m < range.last; ++m) {
      if (tree.IsPresent(MicroBatch(m))) return leaves[m];
    }
  }
  std::vector<float> sum = NaiveSum(tree, children->left, leaves);
  const std::vector<float> right = NaiveSum(tree, children->right, leaves);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + right[i];
  return sum;
}

class SumFixture {
 public:
  SumFixture(const MicroBatchTree& tree, const std::vector<MicroBatch>& assigned)
      : sum(tree, tree.Cover(assigned), shards) {
    std::mt19937 random(tree.shape().micro_batch_count);
    for (uint32_t m = 0; m < tree.shape().micro_batch_count; ++m) {
      buffers.push_back(pool.Take());
      for (float& x : buffers.back()->span()) {
        x = static_cast<float>(random()) * 1e-9f - 2.0f;  // sums round: order matters
      }
      leaves.emplace_back(buffers.back()->span().begin(), buffers.back()->span().end());
    }
  }
  void AddAll(MicroBatch m, uint32_t shard) {
    const auto complete = sum.Add(m, ShardId(shard), buffers[m.value()]);
    if (!complete) return;
    std::lock_guard lock(mutex);
    const std::pair name(complete->node, complete->shard);
    CHECK_MESSAGE(emitted.emplace(name, complete->payload).second, "twice");
  }

  const TensorLayout layout = TwoShardLayout();
  const ShardPlan shards{layout};
  BufferPool pool{layout.float_count()};
  std::vector<SharedBuffer> buffers;
  std::vector<std::vector<float>> leaves;
  std::mutex mutex;
  std::map<std::pair<TreeNode, ShardId>, Blob> emitted;
  TreeSum sum;
};

void CheckEmitted(const SumFixture& f, const MicroBatchTree& tree,
                  const std::vector<MicroBatch>& assigned) {
  const std::vector<TreeNode> cover = tree.Cover(assigned);
  CHECK(f.emitted.size() == cover.size() * f.shards.shard_count());
  for (const auto& [name, blob] : f.emitted) {
    const std::vector<float> whole = NaiveSum(tree, name.first, f.leaves);
    const ShardRange range = f.shards.range(name.second);
    REQUIRE(blob.floats().size() == range.size());
    CHECK(std::equal(blob.floats().begin(), blob.floats().end(), whole.begin() + range.first));
  }
}

std::vector<MicroBatch> RandomSubset(const MicroBatchTree& tree, std::mt19937& random) {
  std::vector<MicroBatch> subset;
  for (MicroBatch m : tree.PresentLeaves()) {
    if (random() % 3 != 0) subset.push_back(m);
  }
  return subset;
}

TEST_CASE("tree sums equal the naive recursion for any assignment and order of arrival") {
  std::mt19937 random(7);
  for (uint32_t n = 1; n <= 9; ++n) {
    for (uint64_t samples : {uint64_t{1}, uint64_t{n}, uint64_t{n} * 5}) {
      const MicroBatchTree tree({.micro_batch_count = n, .sample_count = samples});
      for (int round = 0; round < 8; ++round) {
        std::vector<MicroBatch> assigned =
            round == 0 ? tree.PresentLeaves() : RandomSubset(tree, random);
        SumFixture f(tree, assigned);
        std::vector<std::pair<MicroBatch, uint32_t>> arrivals;
        for (MicroBatch m : assigned) {
          for (uint32_t s = 0; s < f.shards.shard_count(); ++s) arrivals.emplace_back(m, s);
        }
        std::shuffle(arrivals.begin(), arrivals.end(), random);
        for (auto [m, s] : arrivals) f.AddAll(m, s);
        CheckEmitted(f, tree, assigned);
      }
    }
  }
}

TEST_CASE("a shard is emitted as soon as all its leaves are there") {
  const MicroBatchTree tree({.micro_batch_count = 2, .sample_count = 2});
  SumFixture f(tree, tree.PresentLeaves());
  f.AddAll(MicroBatch(0), 1);
  CHECK(f.emitted.empty());
  f.AddAll(MicroBatch(1), 1);
  CHECK(f.emitted.size() == 1);
  CHECK(f.emitted.contains({MicroBatchTree::kRoot, ShardId(1)}));
}

TEST_CASE("a buffer goes back to the pool once its shards are merged") {
  const MicroBatchTree tree({.micro_batch_count = 2, .sample_count = 2});
  SumFixture f(tree, tree.PresentLeaves());
  const FloatBuffer* right = f.buffers[1].get();
  for (uint32_t m : {0, 1}) {
    for (uint32_t s = 0; s < f.shards.shard_count(); ++s) f.AddAll(MicroBatch(m), s);
  }
  f.buffers.clear();
  CHECK(f.pool.Take().get() == right);
  CHECK(f.pool.made_count() == 2);
}

TEST_CASE("threads that finish side by side make the same sums") {
  for (int round = 0; round < 50; ++round) {
    const MicroBatchTree tree({.micro_batch_count = 9, .sample_count = 9});
    SumFixture f(tree, tree.PresentLeaves());
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 3; ++t) {
      threads.emplace_back([&f, t] {
        for (uint32_t m = t; m < 9; m += 3) {
          for (uint32_t s = f.shards.shard_count(); s-- > 0;) f.AddAll(MicroBatch(m), s);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CheckEmitted(f, tree, tree.PresentLeaves());
  }
}

}  // namespace
}  // namespace pando
