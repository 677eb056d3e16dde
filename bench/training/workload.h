// Workload: what the benchmarks of training train: a model with the data that go with it. Used by
// step, scaling and recovery.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"

namespace pando::bench {

struct Workload {
  std::string model;
  std::string data_set;       // data.name
  std::string data_path;      // empty: the set is drawn
  uint32_t resize = 0;        // data.resize
  uint32_t worker_batch = 0;  // samples of a worker's share of a step

  bool is_synthetic() const { return data_path.empty(); }
  std::string DataText() const;            // "mnist" or "synthetic-digits (drawn)"
  std::vector<std::string> Flags() const;  // of pando train
};

// Finds the files of the model's data set in one of the folders of data sets; where none has them,
// pictures of the same size are drawn. `worker_batch` 0: 128 of MNIST's pictures, else 32.
// kInvalidArgument for a model that the zoo does not have.
Result<Workload> FindWorkload(const std::string& model, uint32_t worker_batch,
                              const std::vector<std::string>& folders);

// Where users have data sets (docs/job-file.md, data.path), behind `first` where that is given.
std::vector<std::string> DataFolders(const std::string& first);

}  // namespace pando::bench
