// Convolutions of any shape, directly from the definition, if cuDNN has no engine. Slow. Called by
// conv.cu.
#pragma once

#include "kernels/cuda/cuda_device.h"

namespace pando::cuda {

void DirectConvolve(CudaDevice& gpu, const ConvProblem& problem, const ConvArrays& arrays);

}  // namespace pando::cuda
