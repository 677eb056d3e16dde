// What `pando data inspect` says of a data set.
#pragma once

#include <string>

#include "common/status.h"
#include "data/dataset.h"

namespace pando {

// Counts, shape, classes, and mean and deviation of the training pictures or of a table's columns,
// a line each.
Result<std::string> DescribeData(const DataSet& data);

// Training pictures as a PNG: a row for each of the first classes.  REQUIRES: HoldsPictures(data).
Status WriteContactSheet(const DataSet& data, const std::string& path);
bool HoldsPictures(const DataSet& data);  // and no table

}  // namespace pando
