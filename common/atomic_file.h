// Files that a reader sees whole or not at all, and files that grow by whole rows. Used by the run
// folder, weights and snapshots. Errors name the file, the reason and, if the disk is full, what to
// do.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "common/descriptor.h"
#include "common/status.h"

namespace pando {

// How open a new file is; the umask closes it further.
enum class FileAccess {
  kForAll,    // of a file that a user asks for
  kAsFolder,  // of a run: users that may look into the file's folder may read it
};
mode_t ModeFor(const std::string& path, FileAccess access);
// Opens or makes a file that processes lock: each user that may open it could block its run.
// Earlier releases let all users.
Result<UniqueFd> OpenForOwner(const std::string& path);

// AtomicFile writes beside the target and renames over it: temp, fsync, rename, fsync folder.
// Without Commit() nothing remains.
class AtomicFile {
 public:
  static Result<AtomicFile> Create(std::string path, FileAccess access = FileAccess::kForAll);
  AtomicFile(AtomicFile&&) = default;
  ~AtomicFile();
  Status Write(std::span<const std::byte> bytes);
  Status Commit();

 private:
  AtomicFile(std::string path, std::string temp_path, UniqueFd fd);
  std::string path_;
  std::string temp_path_;
  UniqueFd fd_;  // open until committed
};

Status WriteFileAtomically(const std::string& path, std::string_view text,
                           FileAccess access = FileAccess::kForAll);

// RowFile appends text, whole and at once in each call, so that a killed process loses no row. It
// is as open as its folder.
class RowFile {
 public:
  RowFile() = default;
  static constexpr size_t kRowBytesMax = 1 << 20;
  static Result<RowFile> Create(std::string path);  // empties an existing file
  // Continues after the last sound row, which it returns in *last without its newline; empty if
  // there is none. It cuts off what a crash left behind that row: a partial row or zeros. It
  // creates a missing file.
  static Result<RowFile> Reopen(std::string path,
                                const std::function<bool(std::string_view row)>& is_sound,
                                std::string* last);
  // After an error nothing of `text` is in the file.
  Status Append(std::string_view text);
  Status Sync();  // afterwards the rows survive a power cut

 private:
  RowFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  UniqueFd fd_;
};

// "cannot write runs/a/metrics.csv: No space left on device; free some space".
Status FileError(std::string_view what, const std::string& path, int error_number);

}  // namespace pando
