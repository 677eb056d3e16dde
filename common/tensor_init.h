// Version 0 of the parameters: a pure function of (seed, tensor), so that servers make their own
// shards of it and nothing travels. + − × ÷ √ only (P36), so the logarithm is our own.
#pragma once

#include <cstdint>
#include <span>

#include "common/tensor_layout.h"

namespace pando {

// Fills floats [range.first, range.last) of the flat vector. REQUIRES: out.size() == range.size().
void InitRange(const TensorLayout& layout, uint64_t seed, ShardRange range, std::span<float> out);

}  // namespace pando
