// An external model is a model whose gradients a program computes (P43). These functions turn its
// tensors into texts of the job file and back, and make its plan. Every process of such a run reads
// the texts; the program's worker writes them.
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"
#include "plan/job.h"
#include "plan/job_plan.h"
#include "plan/tensor_layout.h"

namespace pando {

inline bool IsExternal(const Job& job) { return job.model == kExternalName; }
// Returns whether a program has declared the model. Before that, only the run's settings are known.
inline bool IsDeclared(const Job& job) { return !job.tensors.empty(); }

// Returns "conv1.weight [64,3,7,7]", then the values that differ from the default: "statistic=0.1"
// (its momentum), "lr=0.1" (lr_factor), "decay=0" (weight_decay), "group=1". ParseTensor reads this
// text.
std::string TensorText(const TensorSpec& spec);
// Reads a text of TensorText, to the same bits.  kInvalidArgument says what was expected.
Result<TensorSpec> ParseTensor(std::string_view text);

// Returns the layout of job.tensors and the metric tensor.  kInvalidArgument names the tensor.
Result<TensorLayout> ExternalLayout(const Job& job);
// Returns the model's plan. kInvalidArgument also if the optimizer does not support its groups.
// REQUIRES: IsDeclared(job).
Result<JobPlan> ExternalPlan(const Job& job);

// Returns the first difference of two models, for example "tensor 3 is a [2] here, and b [2] in the
// run"; empty if they are equal.
std::string TensorDifference(const Job& here, const Job& run);
// Does the same for the tensors that no step changes (Job::constants).
std::string ConstantDifference(const Job& here, const Job& run);

}  // namespace pando
