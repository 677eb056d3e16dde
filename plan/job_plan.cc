// Has the one function of the plan with a mutation point. Headers have none, since the simulator's
// sources are compiled without mutations.
#include "plan/job_plan.h"

#include "common/mutation.h"

namespace pando {

std::vector<TreeNode> JobPlan::NodesToPush(Step step,
                                           const std::vector<MicroBatch>& micro_batches) const {
  const MicroBatchTree tree = steps.Tree(step);
  if (pushes.is_exact() || Mutated(Mutation::kEncodeSums)) return tree.Cover(micro_batches);
  std::vector<TreeNode> leaves;
  for (MicroBatch m : micro_batches) leaves.push_back(tree.Leaf(m));
  return leaves;
}

}  // namespace pando
