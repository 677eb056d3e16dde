#include "data/table_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <vector>

namespace pando {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> CsvFilesIn(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string path = entry.path().string();
    if (entry.is_regular_file(ignored) && (path.ends_with(".csv") || path.ends_with(".csv.gz")))
      paths.push_back(path);
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

Result<TablePaths> FindTables(const std::string& path, const std::string& dataset) {
  const char* what = "data.path (--data) must be a CSV file, or the folder of one";
  std::error_code ignored;
  if (path.empty()) return InvalidArgument(fmt::format("no file given for {}: {}", dataset, what));
  if (fs::is_regular_file(path, ignored)) return TablePaths{path, ""};
  if (!fs::is_directory(path, ignored))
    return NotFound(fmt::format("{}: no such file or folder; {}", path, what));
  for (const std::string train : {"/train.csv", "/train.csv.gz"}) {
    for (const std::string test : {"/test.csv", "/test.csv.gz"}) {
      if (fs::is_regular_file(path + train, ignored) && fs::is_regular_file(path + test, ignored))
        return TablePaths{path + train, path + test};
    }
  }
  const std::vector<std::string> files = CsvFilesIn(path);
  if (files.size() == 1) return TablePaths{files[0], ""};
  if (files.empty()) return NotFound(fmt::format("{}: holds no .csv file; {}", path, what));
  return InvalidArgument(
      fmt::format("{}: holds {} .csv files, {} among them, but not both train.csv and test.csv; "
                  "give one file as data.path (--data), or name the two train.csv and test.csv",
                  path, files.size(), files[0]));
}

bool HoldsTable(const std::string& folder) { return !CsvFilesIn(folder).empty(); }

}  // namespace pando
