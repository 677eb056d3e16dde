// Convolutions of any shape, straight from the definition: for what cuDNN has no engine for. Slow.
// Called by conv.cu.
#pragma once

#include "kernels/cuda/cuda_device.h"

namespace pando::cuda {

void DirectConvolve(CudaDevice& gpu, const ConvProblem& problem, const ConvArrays& arrays);

}  // namespace pando::cuda
