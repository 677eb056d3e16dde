// A model whose gradients a program computes (P43): its tensors as texts of the job file, and the
// plan that follows. Every process of such a run reads it; the program's worker writes it.
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"
#include "plan/job.h"
#include "plan/job_plan.h"
#include "plan/tensor_layout.h"

namespace pando {

inline bool IsExternal(const Job& job) { return job.model == kExternalName; }
// Whether a program has declared the model. Before, only the settings of the run are known.
inline bool IsDeclared(const Job& job) { return !job.tensors.empty(); }

// "conv1.weight [64,3,7,7]", then what differs from the default: "statistic=0.1" (its momentum),
// "lr=0.1" (lr_factor), "decay=0" (weight_decay). ParseTensor reads it back, to the same bits.
std::string TensorText(const TensorSpec& spec);
// kInvalidArgument says what was expected. Version 0 is zeros until the run has it.
Result<TensorSpec> ParseTensor(std::string_view text);

// The layout of job.tensors, with the metric tensor.  kInvalidArgument names the tensor.
Result<TensorLayout> ExternalLayout(const Job& job);
// REQUIRES: IsDeclared(job). kInvalidArgument also if the optimizer does not support its groups.
Result<JobPlan> ExternalPlan(const Job& job);

// Names the first difference of two models, or "": "tensor 3 is a [2] here, and b [2] in the run".
std::string TensorDifference(const Job& here, const Job& run);
// Does the same for the tensors that no step changes (Job::constants).
std::string ConstantDifference(const Job& here, const Job& run);

}  // namespace pando
