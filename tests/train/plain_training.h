// The whole of training in thirty lines: no threads, no shards, no queue. What the trainer's tests
// compare it with.
#pragma once

#include <functional>
#include <vector>

#include "common/system.h"
#include "data/batch_source.h"
#include "data/dataset.h"
#include "models/network.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "plan/job_plan.h"
#include "tests/train/plain_gradient.h"

namespace pando {

// The parameters after the job's last step, from those that its step `first` reads; the optimizer's
// state begins with zeros.
inline std::vector<float> TrainPlainly(const Job& job, const DataSet& data, const Model& model,
                                       std::vector<float> parameters, Step first = Step(0),
                                       Mode mode = Mode::kTrain) {
  SetFloatEnvironment();
  const JobPlan plan(job, data.facts(), model.layout());
  const TensorLayout& layout = plan.layout;
  const Optimizer optimizer(job.optimizer, layout);
  const Schedule schedule(job.optimizer, job.schedule, plan.steps.step_count());
  BatchSource batches(data, plan.steps, job.seed, 0);
  Network network(model, 64, TestDevice());
  const size_t n = layout.float_count();
  std::vector<float> state(n * optimizer.state_count());
  for (Step step = first; step.value() < plan.steps.step_count(); step = NextStep(step)) {
    auto leaf = [&](MicroBatch m) {
      network.SetBatch(**batches.Take(step, m), {job.seed, step, m}, mode);
      return PlainGradient(network, layout, parameters);
    };
    const MicroBatchTree tree = plan.steps.Tree(step);
    std::function<std::vector<float>(TreeNode)> sum = [&](TreeNode node) {
      auto children = tree.FindChildren(node);
      if (!children) {
        for (MicroBatch m : tree.PresentLeaves()) {
          if (tree.Leaf(m) == node) return leaf(m);
        }
      }
      std::vector<float> left = sum(children->left);
      const std::vector<float> right = sum(children->right);
      for (size_t i = 0; i < n; ++i) left[i] += right[i];
      return left;
    };
    const std::vector<float> root = sum(MicroBatchTree::kRoot);
    std::vector<float> next(n);
    optimizer.Apply({.range = {0, n},
                     .parameters = parameters,
                     .gradient = root,
                     .gradient_scale = 1.0f / static_cast<float>(plan.steps.SampleCount(step)),
                     .scalars = schedule.At(step),
                     .is_first_step = step == Step(0),
                     .state = state,
                     .parameters_out = next,
                     .state_out = state});
    parameters = next;
  }
  return parameters;
}

}  // namespace pando
