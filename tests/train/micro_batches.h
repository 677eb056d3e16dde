// Micro-batches by their numbers, as tests of the session and of the trainer name them.
#pragma once

#include <initializer_list>
#include <vector>

#include "common/ids.h"

namespace pando {

inline std::vector<MicroBatch> MicroBatches(std::initializer_list<uint32_t> indices) {
  std::vector<MicroBatch> result;
  for (uint32_t m : indices) result.emplace_back(m);
  return result;
}

}  // namespace pando
