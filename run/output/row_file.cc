#include "run/output/row_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "common/atomic_file.h"

namespace pando {
namespace {

// Reads the last kRowBytesMax bytes of a file of `file_bytes` bytes.
Result<std::string> ReadTail(int fd, const std::string& path, size_t file_bytes) {
  std::string tail(std::min(file_bytes, RowFile::kRowBytesMax), '\0');
  const auto first = static_cast<off_t>(file_bytes - tail.size());
  const ssize_t count = pread(fd, tail.data(), tail.size(), first);
  if (count != static_cast<ssize_t>(tail.size())) {
    return FileError("read", path, count < 0 ? errno : EIO);
  }
  return tail;
}

}  // namespace

Result<RowFile> RowFile::Create(std::string path) {
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC,
                   ModeFor(path, FileAccess::kAsFolder)));
  if (!fd.is_open()) return FileError("create", path, errno);
  return RowFile(std::move(path), std::move(fd));
}

Result<RowFile> RowFile::Reopen(std::string path,
                                const std::function<bool(std::string_view row)>& is_sound,
                                std::string* last) {
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC,
                   ModeFor(path, FileAccess::kAsFolder)));
  struct stat info {};
  if (!fd.is_open() || fstat(fd.get(), &info) != 0) return FileError("open", path, errno);
  const auto file_bytes = static_cast<size_t>(info.st_size);
  PANDO_ASSIGN_OR_RETURN(std::string tail, ReadTail(fd.get(), path, file_bytes));
  std::string_view rest = tail;
  last->clear();
  for (size_t end = rest.rfind('\n'); end != std::string_view::npos; end = rest.rfind('\n')) {
    const std::string_view before = rest.substr(0, end);
    const std::string_view row = before.substr(before.rfind('\n') + 1);  // npos + 1 is 0
    if (is_sound(row)) {
      *last = row;
      rest = rest.substr(0, end + 1);
      break;
    }
    rest = before.substr(0, before.size() - row.size());
  }
  if (last->empty()) rest = {};
  const size_t sound_bytes = file_bytes - tail.size() + rest.size();
  if (sound_bytes != file_bytes && ftruncate(fd.get(), static_cast<off_t>(sound_bytes)) != 0) {
    return FileError("cut", path, errno);
  }
  return RowFile(std::move(path), std::move(fd));
}

// Removes a row that a full disk cut short, so that the next row begins at the same place.
Status RowFile::Append(std::string_view text) {
  const off_t end = lseek(fd_.get(), 0, SEEK_END);
  const int error = WriteAll(fd_.get(), std::as_bytes(std::span(text)));
  if (error == 0) return Status();
  if (end >= 0) (void)!ftruncate(fd_.get(), end);
  return FileError("write", path_, error);
}

Status RowFile::Sync() {
  return fdatasync(fd_.get()) == 0 ? Status() : FileError("write", path_, errno);
}

}  // namespace pando
