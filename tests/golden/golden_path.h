// Where the files of tests/golden are. For tests that read them.
#pragma once

#include <cstdlib>
#include <string>

namespace pando {

// In the folder PANDO_GOLDEN_DIR, which `meson test` sets. If it is not set, the path is relative
// to the repository's root.
inline std::string GoldenPath(const std::string& file_name) {
  const char* folder = std::getenv("PANDO_GOLDEN_DIR");
  return std::string(folder == nullptr ? "tests/golden" : folder) + "/" + file_name;
}

}  // namespace pando
