#include "bench/harness/scratch_folder.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace pando::bench {

Result<ScratchFolder> ScratchFolder::Create() {
  std::error_code error;
  std::string path = (std::filesystem::temp_directory_path(error) / "pando-bench-XXXXXX").string();
  if (error || mkdtemp(path.data()) == nullptr) {
    return Unavailable(fmt::format("cannot make a folder {} for sockets and logs: {}; set TMPDIR",
                                   path, std::strerror(errno)));
  }
  return ScratchFolder(std::move(path));
}

ScratchFolder::ScratchFolder(ScratchFolder&& other) noexcept
    : path_(std::exchange(other.path_, std::string())) {}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace pando::bench
