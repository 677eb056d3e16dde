#include "server/aggregator.h"

#include <utility>

#include "common/check.h"
#include "common/cpu/float_arrays.h"

namespace pando {

bool Aggregator::HoldsAncestorOrSelf(TreeNode node) const {
  for (;; node = tree_.Parent(node)) {
    if (sums_.contains(node)) return true;
    if (node == MicroBatchTree::kRoot) return false;
  }
}

Aggregator::Sum Aggregator::Merge(const Sum& left, const Sum& right) {
  SharedBuffer out = left.own ? left.own : right.own ? right.own : pool_.Take();
  AddSpans(out->data(), left.values.floats(), right.values.floats());
  return {ToBlob(out), out};
}

bool Aggregator::Add(TreeNode node, const Blob& payload) {
  PANDO_CHECK(tree_.IsCanonical(node));
  PANDO_CHECK(codec_ != nullptr || payload.floats().size() == float_count_);
  if (HoldsAncestorOrSelf(node)) return false;
  DropDescendants(node);
  Sum sum = codec_ != nullptr ? Decoded(&node, payload) : Sum{payload, nullptr};
  while (node != MicroBatchTree::kRoot) {
    auto sibling = sums_.extract(tree_.Sibling(node));
    if (sibling.empty()) break;
    Sum other = std::move(sibling.mapped());
    if (!tree_.IsLeft(node)) std::swap(sum, other);
    node = tree_.Parent(node);
    if (node == MicroBatchTree::kRoot) {
      right_half_ = std::move(other);
    } else {
      sum = Merge(sum, other);
    }
  }
  sums_.emplace(node, std::move(sum));
  return true;
}

// Decodes a payload. If its sibling's sum is held, adds the values to that sum and makes *node
// their parent. a + b and b + a have the same bits; only the brackets matter.
Aggregator::Sum Aggregator::Decoded(TreeNode* node, const Blob& payload) {
  if (*node != MicroBatchTree::kRoot) {
    auto sibling = sums_.extract(tree_.Sibling(*node));
    if (!sibling.empty()) {
      codec_->AddDecoded(payload.bytes(), sibling.mapped().own->span());
      *node = tree_.Parent(*node);
      return std::move(sibling.mapped());
    }
  }
  SharedBuffer own = pool_.Take();
  codec_->Decode(payload.bytes(), own->span());
  return {ToBlob(own), own};
}

const Blob& Aggregator::FinishRoot() {
  const auto it = sums_.find(MicroBatchTree::kRoot);
  PANDO_CHECK(it != sums_.end());
  if (right_half_) {
    it->second = Merge(it->second, *right_half_);
    right_half_.reset();
  }
  return it->second.values;
}

Aggregator::Halves Aggregator::root_halves() const {
  const auto it = sums_.find(MicroBatchTree::kRoot);
  PANDO_CHECK(it != sums_.end());
  return {it->second.values, right_half_ ? right_half_->values : Blob()};
}

std::vector<TreeNode> Aggregator::held_nodes() const {
  std::vector<TreeNode> nodes;
  for (const auto& [node, sum] : sums_) nodes.push_back(node);
  return nodes;
}

}  // namespace pando
