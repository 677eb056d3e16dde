// RowTail reads a file to which another process appends rows: metrics.csv and events.jsonl of a run
// in progress. RunWatch uses it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace pando {

// Threads: none.
class RowTail {
 public:
  static constexpr size_t kRowBytesMax = 1 << 20;  // longer rows are skipped

  explicit RowTail(std::string path) : path_(std::move(path)) {}

  // Calls `take` with each row that was completed since the last call, without its newline. If the
  // file was replaced or emptied since then, first calls `restart` and begins at the first row. A
  // missing file has no rows.
  void Read(const std::function<void()>& restart,
            const std::function<void(std::string_view row)>& take);

 private:
  const std::string path_;
  ino_t inode_ = 0;
  off_t offset_ = 0;    // after the last row that was taken
  bool skips_ = false;  // a row that is too long began before offset_
};

}  // namespace pando
