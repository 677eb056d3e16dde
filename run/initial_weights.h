// InitialWeights has the weights of another run or program that are version 0 of this run
// (model.init, --init). The run folder keeps them as init.safetensors, from which servers make
// version 0 (P45).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/float_buffer.h"
#include "common/result.h"
#include "files/run_files.h"
#include "plan/job_plan.h"
#include "run/run_folder.h"

namespace pando {

struct InitialWeights {
  FloatBuffer flat;
  std::string hash;                 // WeightsHash: model.init_hash
  std::vector<std::string> drawn;   // tensors drawn from the seed, and the reasons
  std::vector<std::string> unused;  // tensors of the file that the model does not have
};

// Reads the file that job.init names, with PyTorch's names: F32, F16 or BF16. Ignores the file's
// counts of batches (num_batches_tracked). With job.init_partial, tensors that do not fit are drawn
// from the seed. Otherwise they are an error, kInvalidArgument, which names them.
Result<InitialWeights> LoadInitialWeights(const Job& job, const TensorLayout& layout);

// Writes the weights into the run's folder.
Status KeepInitialWeights(const InitialWeights& weights, const RunFolder& folder,
                          const JobPlan& plan);

// Reads the weights that the folder keeps; null if the job starts from the seed. kCorrupt: the
// folder has other weights than the job names.
Result<std::shared_ptr<const FloatBuffer>> ReadInitialWeights(RunFiles& run_folder, const Job& job,
                                                              const TensorLayout& layout);
Result<std::shared_ptr<const FloatBuffer>> ReadInitialWeights(const std::string& run_dir,
                                                              const Job& job,
                                                              const TensorLayout& layout);

}  // namespace pando
