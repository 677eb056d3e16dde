// Shared by the tests of embed/: the plan of a small model that a program declares.
#pragma once

#include "plan/external_model.h"

namespace pando {

// Tensors of 3, 4000 and 5 floats, a statistic of 2, and the metrics; several shards. 40 training
// samples in steps of 8, in 4 micro-batches, and 5 test samples.
inline JobPlan SmallPlan(uint64_t verify_every = 0, bool is_weighted = false,
                         std::vector<std::string> logs = {}) {
  Job job;
  job.model = job.dataset = kExternalName;
  job.tensors = {"a [3]", "b [40,100]", "c [5]", "bn.running_mean [2] statistic=0.1"};
  job.synthetic_train_samples = 40;
  job.synthetic_test_samples = 5;
  job.global_batch = 8;
  job.micro_batches = 4;
  job.steps = 10;
  job.eval_sums = {"loss_sum", "correct", "other"};
  job.eval_report = ReportUse::kDecides;
  job.verify_every = verify_every;
  job.optimizer.is_weighted = is_weighted;
  job.train_logs = std::move(logs);
  return *ExternalPlan(job);
}

}  // namespace pando
