#include "data/table_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr auto kEndings = std::to_array<const char*>({".csv", ".csv.gz"});

std::vector<std::string> CsvFilesIn(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.is_regular_file(ignored) && IsTableName(entry.path().string()))
      paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Empty: there is none.
std::string FindSplit(const std::string& folder, const char* name) {
  std::error_code ignored;
  for (const char* ending : kEndings) {
    const std::string path = folder + "/" + name + ending;
    if (fs::is_regular_file(path, ignored)) return path;
  }
  return "";
}

}  // namespace

Result<TablePaths> FindTables(const std::string& path, const std::string& dataset) {
  const char* what = "data.path (--data) must be a CSV file, or the folder of one";
  std::error_code ignored;
  if (path.empty()) return InvalidArgument(fmt::format("no file given for {}: {}", dataset, what));
  if (fs::is_regular_file(path, ignored)) return TablePaths{path, ""};
  if (!fs::is_directory(path, ignored))
    return NotFound(fmt::format("{}: no such file or folder; {}", path, what));
  const TablePaths two{FindSplit(path, "train"), FindSplit(path, "test")};
  if (!two.train.empty() && !two.test.empty()) return two;
  const std::vector<std::string> files = CsvFilesIn(path);
  if (files.size() == 1) return TablePaths{files[0], ""};
  if (files.empty()) return NotFound(fmt::format("{}: holds no .csv file; {}", path, what));
  return InvalidArgument(
      fmt::format("{}: holds {} .csv files, {} among them, but not both train.csv and test.csv; "
                  "give one file as data.path (--data), or name the two train.csv and test.csv",
                  path, files.size(), files[0]));
}

bool IsTableName(const std::string& path) {
  return std::ranges::any_of(kEndings, [&](const char* ending) { return path.ends_with(ending); });
}

bool HoldsTable(const std::string& folder) { return !CsvFilesIn(folder).empty(); }

}  // namespace pando
