// FileWatch finds out whether a file or a folder has changed since the last look, without reading
// it. RunWatch uses it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>

namespace pando {

// Threads: none.
class FileWatch {
 public:
  using WallTime = std::chrono::system_clock::time_point;

  explicit FileWatch(std::string path) : path_(std::move(path)) {}

  // Returns whether the file has changed. Also true at the first call, and while the last change is
  // so new that another one may get the same time. A missing file counts as one that never changes.
  bool HasChanged(WallTime now = std::chrono::system_clock::now());

 private:
  struct Stamp {
    ino_t inode = 0;  // a different one means that the file was replaced
    off_t bytes = 0;
    WallTime modified_at;
    WallTime changed_at;  // of the inode, since a rename or a copy keeps the time above
    bool operator==(const Stamp&) const = default;
  };
  const std::string path_;
  Stamp stamp_;
  bool is_settled_ = false;  // the file with this stamp was read when the stamp was no longer new
};

}  // namespace pando
