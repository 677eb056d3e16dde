// Weights as files and as one name: safetensors (PyTorch's names, shapes and layouts, fp32) and the
// hash that two runs compare. Both leave out the metric tensor and the padding between tensors.
// Format: https://huggingface.co/docs/safetensors
#pragma once

#include <span>
#include <string>

#include "common/status.h"
#include "common/tensor_layout.h"

namespace pando {

// xxh3-128, canonical hex, over the fp32 bytes of all tensors in model order.
// REQUIRES: flat.size() == layout.float_count().
std::string WeightsHash(const TensorLayout& layout, std::span<const float> flat);

// Writes the file atomically. REQUIRES: as above.
Status WriteSafetensors(const std::string& path, const TensorLayout& layout,
                        std::span<const float> flat);

}  // namespace pando
