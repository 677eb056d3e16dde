// Weights of another run or program as version 0 (model.init, --init). The run folder keeps them,
// as init.safetensors: servers, which make version 0, read them there (P45).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/float_buffer.h"
#include "common/status.h"
#include "files/run_files.h"
#include "plan/job_plan.h"
#include "run/run_folder.h"

namespace pando {

struct InitialWeights {
  FloatBuffer flat;
  std::string hash;                 // WeightsHash: model.init_hash
  std::vector<std::string> drawn;   // tensors that the seed gives, and why
  std::vector<std::string> unused;  // of the file: the model has none of that name
};

// Reads the file that job.init names, with PyTorch's names: F32, F16 or BF16. Its counters of
// batches (num_batches_tracked) are ignored. With job.init_partial, tensors that do not fit are
// drawn from the seed. Without, they are kInvalidArgument, which names them.
Result<InitialWeights> LoadInitialWeights(const Job& job, const TensorLayout& layout);

// Keeps them in the run's folder.
Status KeepInitialWeights(const InitialWeights& weights, const RunFolder& folder,
                          const JobPlan& plan);

// What the folder keeps; null if the job starts from the seed.  kCorrupt if they are not those that
// the job names.
Result<std::shared_ptr<const FloatBuffer>> ReadInitialWeights(RunFiles& run_folder, const Job& job,
                                                              const TensorLayout& layout);
Result<std::shared_ptr<const FloatBuffer>> ReadInitialWeights(const std::string& run_dir,
                                                              const Job& job,
                                                              const TensorLayout& layout);

}  // namespace pando
