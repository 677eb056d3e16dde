#include "server/aggregator.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

namespace pando {
namespace {

constexpr size_t kFloats = 32;

Blob MakePayload(float value) {
  auto buffer = std::make_shared<FloatBuffer>(kFloats);
  std::ranges::fill(buffer->span(), value);
  return ToBlob(buffer);
}

MicroBatchTree MakeTree(uint32_t n) {
  return MicroBatchTree({.micro_batch_count = n, .sample_count = 1000});
}

// Values whose sum depends on the order of additions.
float LeafValue(uint32_t m) {
  return 1.0f / static_cast<float>(3 + m) * (m % 2 == 0 ? 1.0f : 1e4f);
}

float SumUnder(const MicroBatchTree& tree, TreeNode node) {
  if (auto children = tree.FindChildren(node))
    return SumUnder(tree, children->left) + SumUnder(tree, children->right);
  return LeafValue(tree.Range(node).first);
}

TEST_CASE("the root is the tree's sum for every order of arrival and every grouping") {
  std::mt19937 random(1);
  for (uint32_t n : {1u, 2u, 3u, 5u, 6u, 8u, 13u}) {
    const MicroBatchTree tree = MakeTree(n);
    std::vector<TreeNode> all;
    for (uint32_t i = 1; i < tree.node_bound(); ++i) {
      if (tree.IsCanonical(TreeNode(i))) all.emplace_back(i);
    }
    for (int round = 0; round < 50; ++round) {
      Aggregator aggregator(kFloats);
      aggregator.Begin(tree);
      std::ranges::shuffle(all,
                           random);  // inner nodes, leaves, duplicates of what is held: all mixed
      for (size_t i = 0; !aggregator.is_complete(); ++i) {
        const TreeNode node = all[i % all.size()];
        if (node == MicroBatchTree::kRoot && n > 1) continue;
        aggregator.Add(node, MakePayload(SumUnder(tree, node)));
      }
      CHECK(aggregator.FinishRoot().floats()[0] == SumUnder(tree, MicroBatchTree::kRoot));
      CHECK(aggregator.FinishRoot().floats()[kFloats - 1] == aggregator.FinishRoot().floats()[0]);
    }
  }
}

TEST_CASE("an encoded gradient is summed as its decoded floats, in every order of arrival") {
  const TensorLayout layout({{.name = "w", .shape = {kFloats}}});
  const ShardCodec codec({PayloadCodec::kBf16}, layout, {0, kFloats});
  const auto sent = [&](uint32_t m) {
    auto encoded = std::make_shared<FloatBuffer>(codec.encoded_bytes() / sizeof(float));
    codec.Encode(std::vector<float>(kFloats, LeafValue(m)),
                 std::as_writable_bytes(encoded->span()));
    return ToBlob(encoded);
  };
  const auto decoded = [&](uint32_t m) {
    std::vector<float> floats(kFloats);
    codec.Decode(sent(m).bytes(), floats);
    return floats[0];
  };
  const MicroBatchTree tree = MakeTree(4);
  const float root = (decoded(0) + decoded(1)) + (decoded(2) + decoded(3));
  REQUIRE(decoded(0) != LeafValue(0));
  std::vector<uint32_t> order{0, 1, 2, 3};
  do {
    Aggregator aggregator(kFloats, &codec);
    aggregator.Begin(tree);
    for (uint32_t m : order) {
      CHECK(aggregator.Add(tree.Leaf(MicroBatch(m)), sent(m)));
      CHECK_FALSE(aggregator.Add(tree.Leaf(MicroBatch(m)), sent(m)));
    }
    REQUIRE(aggregator.is_complete());
    CHECK(aggregator.FinishRoot().floats().size() == kFloats);
    CHECK(aggregator.FinishRoot().floats()[0] == root);
  } while (std::ranges::next_permutation(order).found);
}

TEST_CASE("a node that is held, or whose ancestor is held, is dropped") {
  Aggregator aggregator(kFloats);
  aggregator.Begin(MakeTree(4));
  CHECK(aggregator.Add(TreeNode(4), MakePayload(1)));
  CHECK_FALSE(aggregator.Add(TreeNode(4), MakePayload(1)));
  CHECK(aggregator.Add(TreeNode(5), MakePayload(2)));
  CHECK(aggregator.held_nodes() == std::vector<TreeNode>{TreeNode(2)});
  CHECK_FALSE(aggregator.Add(TreeNode(5), MakePayload(2)));
  CHECK_FALSE(aggregator.Add(TreeNode(2), MakePayload(3)));
}

TEST_CASE("an ancestor replaces the descendants held") {
  Aggregator aggregator(kFloats);
  aggregator.Begin(MakeTree(4));
  CHECK(aggregator.Add(TreeNode(5), MakePayload(2)));
  CHECK(aggregator.Add(TreeNode(2), MakePayload(3)));
  CHECK(aggregator.held_nodes() == std::vector<TreeNode>{TreeNode(2)});
}

TEST_CASE("a contribution is read where it arrived and never copied") {
  Aggregator aggregator(kFloats);
  aggregator.Begin(MakeTree(1));
  const Blob payload = MakePayload(7);
  CHECK(aggregator.Add(MicroBatchTree::kRoot, payload));
  CHECK(aggregator.FinishRoot().floats().data() == payload.floats().data());
}

TEST_CASE("the root's halves are not added before the root is asked for") {
  Aggregator aggregator(kFloats);
  aggregator.Begin(MakeTree(4));
  const Blob left = MakePayload(1), right = MakePayload(2);
  CHECK(aggregator.Add(TreeNode(3), right));
  CHECK(aggregator.Add(TreeNode(2), left));
  REQUIRE(aggregator.is_complete());
  CHECK(aggregator.root_halves().left.floats().data() == left.floats().data());
  CHECK(aggregator.root_halves().right.floats().data() == right.floats().data());
  CHECK(aggregator.held_nodes() == std::vector<TreeNode>{MicroBatchTree::kRoot});
  CHECK(aggregator.FinishRoot().floats()[0] == 3);
  CHECK(left.floats()[0] == 1);  // others may read it
  CHECK(aggregator.root_halves().left.floats()[0] == 3);
  CHECK(aggregator.root_halves().right.size_bytes() == 0);
}

TEST_CASE("a sum starts as a copy of its first term: minus zero survives") {
  Aggregator aggregator(kFloats);
  aggregator.Begin(MakeTree(2));
  aggregator.Add(TreeNode(2), MakePayload(-0.0f));
  aggregator.Add(TreeNode(3), MakePayload(-0.0f));
  CHECK(std::signbit(aggregator.FinishRoot().floats()[0]));
}

TEST_CASE("a new step forgets the last one") {
  Aggregator aggregator(kFloats);
  aggregator.Begin(MakeTree(2));
  aggregator.Add(TreeNode(2), MakePayload(1));
  aggregator.Begin(MakeTree(2));
  CHECK(aggregator.held_nodes().empty());
  CHECK_FALSE(aggregator.is_complete());
}

}  // namespace
}  // namespace pando
