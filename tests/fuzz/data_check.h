// Checks that hold for each data set that opens. Used by the fuzz targets of data sets.
#pragma once

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "common/check.h"
#include "data/dataset.h"

namespace pando {

// Reads all its samples.
inline void CheckDataSet(const OpenedDataSet& opened) {
  if (!opened.ok()) {
    PANDO_CHECK(!opened.status().message().empty());
    return;
  }
  const DataSet& set = **opened;
  PANDO_CHECK(set.class_names().size() == set.class_count());
  for (const Split split : {Split::kTrain, Split::kTest}) {
    std::vector<uint64_t> indices(set.sample_count(split));
    std::iota(indices.begin(), indices.end(), 0);
    Batch batch;
    PANDO_CHECK(set.Read({.split = split, .indices = indices}, &batch).ok());
    for (const int32_t label : batch.labels)
      PANDO_CHECK(label >= 0 && static_cast<uint32_t>(label) < set.class_count());
    for (const float value : batch.values) PANDO_CHECK(std::isfinite(value));
  }
}

}  // namespace pando
