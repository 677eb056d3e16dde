#include "plan/micro_batch_tree.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

namespace pando {
namespace {

std::vector<uint32_t> Values(const std::vector<TreeNode>& nodes) {
  std::vector<uint32_t> values;
  for (TreeNode node : nodes) values.push_back(node.value());
  return values;
}

std::vector<MicroBatch> MicroBatches(std::initializer_list<uint32_t> indices) {
  std::vector<MicroBatch> result;
  for (uint32_t i : indices) result.emplace_back(i);
  return result;
}

TEST_CASE("a full tree of four has seven canonical nodes") {
  MicroBatchTree tree({.micro_batch_count = 4, .sample_count = 100});
  for (uint32_t i = 1; i < 8; ++i) CHECK(tree.IsCanonical(TreeNode(i)));
  CHECK_FALSE(tree.IsCanonical(TreeNode(0)));
  CHECK_FALSE(tree.IsCanonical(TreeNode(8)));
  CHECK(tree.Leaf(MicroBatch(2)) == TreeNode(6));
  CHECK(tree.Sibling(TreeNode(6)) == TreeNode(7));
  CHECK(tree.Parent(TreeNode(6)) == TreeNode(3));
  CHECK(tree.Range(TreeNode(3)) == MicroBatchRange{2, 4});
}

TEST_CASE("an absent sibling is passed through") {
  MicroBatchTree tree({.micro_batch_count = 5, .sample_count = 100});  // P = 8
  CHECK(tree.Leaf(MicroBatch(4)) ==
        TreeNode(3));  // leaf 12 = nodes 6 = 3: only its highest name counts
  CHECK_FALSE(tree.IsCanonical(TreeNode(12)));
  CHECK(tree.Sibling(TreeNode(3)) == TreeNode(2));
  CHECK_FALSE(tree.FindChildren(TreeNode(3)).has_value());
}

TEST_CASE("one micro-batch is the root") {
  MicroBatchTree tree({.micro_batch_count = 1, .sample_count = 1});
  CHECK(tree.Leaf(MicroBatch(0)) == MicroBatchTree::kRoot);
  CHECK(Values(tree.Cover(MicroBatches({0}))) == std::vector<uint32_t>{1});
}

TEST_CASE("leaves that a short batch leaves empty are absent") {
  MicroBatchTree tree(
      {.micro_batch_count = 4, .sample_count = 2});  // leaves 1 and 3 have one sample
  CHECK(tree.PresentLeaves() == MicroBatches({1, 3}));
  CHECK(tree.Leaf(MicroBatch(1)) == TreeNode(2));
  CHECK(tree.Leaf(MicroBatch(3)) == TreeNode(3));
}

TEST_CASE("a cover is the fewest nodes with exactly the assigned leaves") {
  MicroBatchTree tree({.micro_batch_count = 8, .sample_count = 64});
  CHECK(Values(tree.Cover(MicroBatches({0, 1, 2, 3}))) == std::vector<uint32_t>{2});
  CHECK(Values(tree.Cover(MicroBatches({1, 2, 3}))) == std::vector<uint32_t>{9, 5});
  CHECK(Values(tree.Cover(MicroBatches({0, 1, 2, 3, 4, 5, 6, 7}))) == std::vector<uint32_t>{1});
  CHECK(tree.Cover({}).empty());
}

TEST_CASE("covers hold every assigned leaf once, for every shape and subset") {
  for (uint32_t n = 1; n <= 9; ++n) {
    for (uint64_t samples : {uint64_t{1}, uint64_t{3}, uint64_t{n}, uint64_t{40}}) {
      MicroBatchTree tree({.micro_batch_count = n, .sample_count = samples});
      for (uint32_t subset = 0; subset < (1u << n); ++subset) {
        std::vector<MicroBatch> assigned;
        for (uint32_t m = 0; m < n; ++m) {
          if (subset >> m & 1) assigned.emplace_back(m);
        }
        uint32_t held = 0;
        for (TreeNode node : tree.Cover(assigned)) {
          CHECK(tree.IsCanonical(node));
          for (MicroBatch m : tree.PresentLeaves()) {
            MicroBatchRange range = tree.Range(node);
            if (m.value() < range.first || m.value() >= range.last) continue;
            CHECK((held >> m.value() & 1) == 0);
            held |= 1u << m.value();
          }
        }
        uint32_t wanted = 0;
        for (MicroBatch m : assigned) wanted |= tree.IsPresent(m) ? 1u << m.value() : 0;
        CHECK(held == wanted);
      }
    }
  }
}

TEST_CASE("children and parents agree") {
  for (uint32_t n : {1u, 2u, 3u, 6u, 7u, 13u, 64u}) {
    MicroBatchTree tree({.micro_batch_count = n, .sample_count = 1000});
    for (uint32_t i = 1; i < tree.node_bound(); ++i) {
      TreeNode node(i);
      if (!tree.IsCanonical(node)) continue;
      auto children = tree.FindChildren(node);
      if (!children) continue;
      CHECK(tree.IsLeft(children->left));
      CHECK_FALSE(tree.IsLeft(children->right));
      CHECK(tree.Sibling(children->left) == children->right);
      CHECK(tree.Parent(children->left) == node);
      CHECK(tree.Parent(children->right) == node);
      CHECK(tree.IsAncestor(node, children->left));
      CHECK_FALSE(tree.IsAncestor(children->left, node));
      CHECK_FALSE(tree.IsAncestor(node, node));
    }
  }
}

}  // namespace
}  // namespace pando
