// Describes a data set for `pando data inspect`, as text and as a contact sheet.
#pragma once

#include <string>

#include "common/result.h"
#include "data/dataset.h"

namespace pando {

// Returns one line each for counts, shape, classes, and mean and deviation of the training pictures
// or of a table's columns.
Result<std::string> DescribeData(const DataSet& data);

// Writes training pictures as a PNG, with a row per class. REQUIRES: HoldsPictures(data).
Status WriteContactSheet(const DataSet& data, const std::string& path);
bool HoldsPictures(const DataSet& data);  // false for a table

}  // namespace pando
