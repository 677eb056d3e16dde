#include "bench/training/pando_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

namespace pando::bench {

namespace fs = std::filesystem;

Result<std::string> FindPando(const std::string& given) {
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  // libexec/pando/pando-bench stands beside bin/pando.
  std::vector<fs::path> places{here / "pando", here.parent_path() / "cli" / "pando",
                               here.parent_path().parent_path() / "bin" / "pando"};
  if (!given.empty()) places = {given};
  std::string tried;
  for (const fs::path& place : places) {
    const bool is_file = fs::is_regular_file(place, error);
    if (is_file && access(place.c_str(), X_OK) == 0) return fs::absolute(place, error).string();
    tried += "\n  " + place.string();
  }
  return NotFound(fmt::format(
      "the program pando, which this benchmark measures, is not there:{}\nname it with --program",
      tried));
}

}  // namespace pando::bench
