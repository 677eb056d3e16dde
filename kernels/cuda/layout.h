// Conversions between layouts and element types on the GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/cuda_device.h"
#include "kernels/ops.h"
#include "kernels/scratch_carver.h"

namespace pando::cuda {

// Converts floats at any address to elements, and elements to floats.
void ToElements(CudaDevice& gpu, size_t count, const float* x, void* y);
void ToFloats(CudaDevice& gpu, size_t count, const void* x, float* y);

// Converts weights from PyTorch's [out, channels / groups, taps] to [out, taps, channels / groups]
// in elements, and gradients back. `stored` is the same spec, or has StoredChannels(); the elements
// then have these channels, of which the last ones are 0.
void FilterToElements(CudaDevice& gpu, const Conv2dSpec& spec, const Conv2dSpec& stored,
                      const float* x, void* y);
void FilterToFloats(CudaDevice& gpu, const Conv2dSpec& spec, const Conv2dSpec& stored,
                    const void* x, float* y);
// Transposes [rows, columns] to [columns, rows], for floats.
void TransposeFloats(CudaDevice& gpu, uint32_t rows, uint32_t columns, const float* x, float* y);

}  // namespace pando::cuda
