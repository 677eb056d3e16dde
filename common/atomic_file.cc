#include "common/atomic_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace pando {
namespace {

std::string FolderWith(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder;
}

}  // namespace

Status SyncFolder(const std::string& folder) {
  UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot sync folders and return EINVAL.
  if (!fd.is_open() || (fsync(fd.get()) != 0 && errno != EINVAL)) {
    return FileError("sync folder", folder, errno);
  }
  return Status();
}

Status FileError(std::string_view what, const std::string& path, int error_number) {
  const std::string text = fmt::format("cannot {} {}: {}", what, path, std::strerror(error_number));
  if (error_number == ENOSPC || error_number == EDQUOT) return NoSpace(text + "; free some space");
  const bool is_shut = error_number == EACCES || error_number == EROFS;
  return InvalidArgument(text + (is_shut ? "; give a folder you may write to" : ""));
}

mode_t ModeFor(const std::string& path, FileAccess access) {
  constexpr mode_t kForAll = 0644, kForOwner = 0600;
  if (access == FileAccess::kForAll) return kForAll;
  struct stat info {};
  const bool is_known = stat(FolderWith(path).c_str(), &info) == 0;
  return is_known ? info.st_mode & kForAll : kForOwner;
}

int WriteAll(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return 0;
}

Result<UniqueFd> OpenForOwner(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.is_open()) return FileError("open", path, errno);
  (void)!fchmod(fd.get(), 0600);  // fails if another user has made the file
  return fd;
}

AtomicFile::AtomicFile(std::string path, std::string temp_path, UniqueFd fd)
    : path_(std::move(path)), temp_path_(std::move(temp_path)), fd_(std::move(fd)) {}

Result<AtomicFile> AtomicFile::Create(std::string path, FileAccess access) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    const char* what = S_ISDIR(info.st_mode) ? "a folder" : "a device, socket or pipe";
    return InvalidArgument(
        fmt::format("cannot replace {}: it is {}; give the name of a file", path, what));
  }
  std::string temp_path = path + ".tmp";
  // Removes what an earlier try left. We never write to a file that another user creates meanwhile.
  unlink(temp_path.c_str());
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  UniqueFd fd(open(temp_path.c_str(), kFlags, ModeFor(path, access)));
  if (!fd.is_open()) return FileError("create", temp_path, errno);
  return AtomicFile(std::move(path), std::move(temp_path), std::move(fd));
}

AtomicFile::~AtomicFile() {
  if (fd_.is_open()) unlink(temp_path_.c_str());
}

Status AtomicFile::Write(std::span<const std::byte> bytes) {
  const int error = WriteAll(fd_.get(), bytes);
  return error == 0 ? Status() : FileError("write", path_, error);
}

Status AtomicFile::Commit() {
  if (fsync(fd_.get()) != 0) return FileError("write", path_, errno);
  if (rename(temp_path_.c_str(), path_.c_str()) != 0) return FileError("write", path_, errno);
  fd_ = UniqueFd();
  return SyncFolder(FolderWith(path_));
}

Status WriteFileAtomically(const std::string& path, std::string_view text, FileAccess access) {
  PANDO_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path, access));
  PANDO_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(text))));
  return file.Commit();
}

}  // namespace pando
