// ScratchFolder: where a benchmark keeps sockets, logs and runs while it measures. Used by the
// benchmarks that start processes.
#pragma once

#include <string>

#include "common/status.h"

namespace pando::bench {

// Owns: a new folder among the temporary ones, which goes with it.
class ScratchFolder {
 public:
  static Result<ScratchFolder> Create();
  ScratchFolder(ScratchFolder&& other) noexcept;
  ~ScratchFolder();
  const std::string& path() const { return path_; }

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;  // empty: moved from
};

}  // namespace pando::bench
