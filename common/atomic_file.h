// AtomicFile is a file that a reader sees either whole or not at all. The run folder, weights and
// snapshots use it. Errors name the file, the reason and, if the disk is full, a remedy.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "common/result.h"
#include "common/unique_fd.h"

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

// Makes the folder's names durable: a rename survives a power cut only after that.
Status SyncFolder(const std::string& folder);

// Returns the error number; 0 if all bytes were written.
int WriteAll(int fd, std::span<const std::byte> bytes);
Status WriteFileAtomically(const std::string& path, std::string_view text,
                           FileAccess access = FileAccess::kForAll);

// Example: "cannot write runs/a/metrics.csv: No space left on device; free some space".
Status FileError(std::string_view what, const std::string& path, int error_number);

}  // namespace pando
