// What `pando bench kernels` asks of this program: times of the layers of the zoo's models on one
// core, and what the core and its memory do at most. GPUs have a separate program, gpu_bench.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"

namespace pando::bench {

// Answers each line of standard input with a line of JSON on standard output, until it ends:
//   work MODEL             the model's layers, and the work of each for one batch
//   MODEL                  a pass: ms of each layer, forward, backward, and of Eigen's product
//   fused multiply-adds    GFLOP/s
//   memcpy                 GB/s
// kInvalidArgument for a model that the zoo does not have.
Status RunLayers(const std::vector<std::string>& models, uint32_t batch);

}  // namespace pando::bench
