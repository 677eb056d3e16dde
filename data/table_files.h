// Finds the CSV files, plain or gzip-compressed, that are the data set at a path. table_set.cc and
// dataset.cc call it.
#pragma once

#include <string>

#include "common/result.h"

namespace pando {

struct TablePaths {
  std::string train;
  std::string test;  // empty: `train` is split
};
// Takes a file, a folder with one .csv or .csv.gz, or a folder with train.csv and test.csv.
Result<TablePaths> FindTables(const std::string& path, const std::string& dataset);

// Returns whether there is a CSV file. If there are several, opening the data set asks which one.
bool HoldsTable(const std::string& folder);

}  // namespace pando
