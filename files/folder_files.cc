#include "files/folder_files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace pando {
namespace {

namespace fs = std::filesystem;

class LocalFile : public ReadableFile {
 public:
  LocalFile(std::string path, UniqueFd fd, uint64_t size)
      : path_(std::move(path)), fd_(std::move(fd)), size_(size) {}
  uint64_t size() const override { return size_; }
  Status Read(uint64_t first_byte, std::span<std::byte> out) const override;

 private:
  const std::string path_;
  const UniqueFd fd_;
  const uint64_t size_;
};

Status LocalFile::Read(uint64_t first_byte, std::span<std::byte> out) const {
  uint64_t at = first_byte;
  while (!out.empty()) {
    const ssize_t count = pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return Unavailable(
          fmt::format("cannot read {} at byte {}: {}", path_, first_byte, std::strerror(errno)));
    }
    if (count == 0)
      return Corrupt(fmt::format("{}: byte {}: the file ends early", path_, first_byte));
    out = out.subspan(static_cast<size_t>(count));
    at += static_cast<uint64_t>(count);
  }
  return Status();
}

}  // namespace

Result<std::unique_ptr<ReadableFile>> OpenFile(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!fd.is_open() || fstat(fd.get(), &info) != 0)
    return NotFound(fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  std::unique_ptr<ReadableFile> file =
      std::make_unique<LocalFile>(path, std::move(fd), static_cast<uint64_t>(info.st_size));
  return file;
}

Result<std::vector<std::string>> FolderFiles::List(const std::string& prefix) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, ignored)) {
    if (std::string name = entry.path().filename(); name.starts_with(prefix))
      names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  return names;
}

Result<std::unique_ptr<ReadableFile>> FolderFiles::Open(const std::string& name) {
  return OpenFile(folder_ + "/" + name);
}

Status FolderFiles::Store(const std::string& name, const Pieces& pieces) {
  // We do not create the folder: if a run folder is missing, it may be on another machine.
  const auto store = [&]() -> Status {
    PANDO_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(folder_ + "/" + name, access_));
    for (const auto piece : pieces) PANDO_RETURN_IF_ERROR(file.Write(piece));
    return file.Commit();
  };
  const Status status = store();
  std::error_code ignored;
  if (status.ok() || fs::is_directory(folder_, ignored)) return status;
  return {status.code(), status.message() + advice_};
}

}  // namespace pando
