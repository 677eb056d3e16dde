// For tests of data sets.
#pragma once

#include <doctest/doctest.h>

#include <numeric>
#include <vector>

#include "data/dataset.h"

namespace pando {

// All samples of a split, in their order.
inline Batch ReadAll(const DataSet& data, Split split) {
  std::vector<uint64_t> indices(data.sample_count(split));
  std::iota(indices.begin(), indices.end(), uint64_t{0});
  Batch batch;
  REQUIRE(data.Read({split, indices}, &batch).ok());
  return batch;
}

}  // namespace pando
