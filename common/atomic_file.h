// Files that a reader sees either whole or not at all, and files that grow by whole rows. The run
// folder, weights and snapshots use them. Errors name the file, the reason and, if the disk is
// full, a remedy.
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

// The access that a new file grants. The umask restricts it further.
enum class FileAccess {
  kForAll,    // for a file that a user asks for
  kAsFolder,  // for a run's file: users that may read the file's folder may read the file
};
mode_t ModeFor(const std::string& path, FileAccess access);
// Opens or creates a lock file for its owner alone: any user that may open it could block the run.
// Earlier releases gave all users access.
Result<UniqueFd> OpenForOwner(const std::string& path);

// AtomicFile writes to a file beside the target, syncs it, renames it over the target and syncs the
// folder. Without Commit() nothing remains.
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

// RowFile appends each text whole and at once, so that a killed process loses no row. Its access is
// that of its folder.
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

// Example: "cannot write runs/a/metrics.csv: No space left on device; free some space".
Status FileError(std::string_view what, const std::string& path, int error_number);

}  // namespace pando
