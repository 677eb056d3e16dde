// RowFile is a text file that grows by whole rows. It appends each text at once, so that a killed
// process loses no row. Its access is that of its folder.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "common/result.h"
#include "common/unique_fd.h"

namespace pando {

class RowFile {
 public:
  RowFile() = default;
  static constexpr size_t kRowBytesMax = 1 << 20;
  static Result<RowFile> Create(std::string path);  // empties an existing file
  // Opens the file, or creates it, to continue after the last sound row. Sets *last to that row
  // without its newline, or to "" if there is none. Cuts off what a crash left behind that row: a
  // partial row or zeros.
  static Result<RowFile> Reopen(std::string path,
                                const std::function<bool(std::string_view row)>& is_sound,
                                std::string* last);
  // If it fails, the file has no part of `text`.
  Status Append(std::string_view text);
  Status Sync();  // after it returns, the rows survive a power cut

 private:
  RowFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  UniqueFd fd_;
};

}  // namespace pando
