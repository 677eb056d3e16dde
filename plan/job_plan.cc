#include "plan/job_plan.h"

namespace pando {

std::vector<TreeNode> JobPlan::NodesToPush(Step step,
                                           const std::vector<MicroBatch>& micro_batches) const {
  const MicroBatchTree tree = steps.Tree(step);
  if (pushes.is_exact()) return tree.Cover(micro_batches);
  std::vector<TreeNode> leaves;
  for (MicroBatch m : micro_batches) leaves.push_back(tree.Leaf(m));
  return leaves;
}

}  // namespace pando
