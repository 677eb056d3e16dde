#include "bench/harness/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "bench/harness/result_json.h"
#include "bench/harness/writers.h"
#include "common/atomic_file.h"

namespace pando::bench {
namespace {

namespace fs = std::filesystem;

Result<std::vector<fs::path>> ResultFiles(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> paths;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".json") paths.push_back(it->path());
  }
  if (error) {
    return NotFound(
        fmt::format("cannot read the folder {}: {}; name the --out folder of a "
                    "benchmark",
                    folder, error.message()));
  }
  if (paths.empty()) {
    return NotFound(fmt::format("no results (*.json) in {}: run a benchmark with --out {} first",
                                folder, folder));
  }
  std::ranges::sort(paths);
  return paths;
}

Result<ResultSet> ReadResult(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return NotFound(fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return FromJson(text, path.string());
}

}  // namespace

Status WriteResults(const ResultSet& set, const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return InvalidArgument(fmt::format("--out {}: cannot make the folder: {}; choose another one",
                                       folder, error.message()));
  }
  const std::string stem = folder + "/" + set.benchmark;
  for (const Plot& plot : set.plots) {
    Status s = WriteFileAtomically(fmt::format("{}/{}.svg", folder, plot.name), ToSvg(plot));
    if (!s.ok()) return s;
  }
  if (Status s = WriteFileAtomically(stem + ".md", ToMarkdown(set)); !s.ok()) return s;
  return WriteFileAtomically(stem + ".json", ToJson(set));
}

Result<std::string> WriteReport(const std::string& folder) {
  const Result<std::vector<fs::path>> paths = ResultFiles(folder);
  if (!paths.ok()) return paths.status();
  std::vector<ResultSet> sets;
  for (const fs::path& path : *paths) {
    Result<ResultSet> set = ReadResult(path);
    if (!set.ok()) return set.status();
    sets.push_back(*std::move(set));
  }
  std::string page = folder + "/" + kReportFile;
  if (Status s = WriteFileAtomically(page, ToHtml(sets)); !s.ok()) return s;
  return page;
}

}  // namespace pando::bench
