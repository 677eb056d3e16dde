// PlainPort: the call of a pass in a test. It wants its work to the end.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "train/pass_parameters.h"
#include "train/tree_sum.h"

namespace pando {

class PlainPort : public GradientSink, public PassControl {
 public:
  using OnSum = std::function<void(TreeNode node, ShardId shard, const Blob& sum)>;
  // `on_question`: called when the pass asks whether it is abandoned.
  explicit PlainPort(
      OnSum on_sum, std::function<void()> on_question = [] {})
      : on_sum_(std::move(on_sum)), on_question_(std::move(on_question)) {}

  void OnGradient(TreeNode node, ShardId shard, Blob sum) override { on_sum_(node, shard, sum); }
  bool IsInterrupted() const override { return false; }
  bool IsAbandoned(bool) const override {
    on_question_();
    return false;
  }
  void FetchParameters(const std::vector<ShardId>&) override {}

 private:
  const OnSum on_sum_;
  const std::function<void()> on_question_;
};

}  // namespace pando
