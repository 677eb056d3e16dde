#include "files/folder_disk.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "common/atomic_file.h"
#include "files/run_files.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

class AtomicDraft : public FileDraft {
 public:
  explicit AtomicDraft(AtomicFile file) : file_(std::move(file)) {}
  Status Append(std::span<const std::byte> bytes) override { return file_.Write(bytes); }
  Status Commit() override { return file_.Commit(); }

 private:
  AtomicFile file_;
};

}  // namespace

std::optional<uint64_t> FolderDisk::FindSize(const std::string& name) {
  std::error_code missing;
  const uint64_t size = fs::file_size(PathTo(name), missing);
  return missing ? std::nullopt : std::optional(size);
}

Result<std::unique_ptr<FileDraft>> FolderDisk::Create(const std::string& name) {
  std::error_code ignored;  // creating the file says what is wrong
  fs::create_directories(fs::path(PathTo(name)).parent_path(), ignored);
  PANDO_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(PathTo(name)));
  std::unique_ptr<FileDraft> draft = std::make_unique<AtomicDraft>(std::move(file));
  return draft;
}

Result<FileDisk::Part> FolderDisk::Read(const std::string& name, uint64_t offset, uint64_t size) {
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, OpenFile(PathTo(name)));
  const uint64_t left = file->size() - std::min(offset, file->size());
  auto bytes = std::make_shared<std::vector<std::byte>>(std::min(size, left));
  PANDO_RETURN_IF_ERROR(file->Read(offset, *bytes));
  const std::span<const std::byte> all = *bytes;
  return Part{file->size(), Blob(all, std::move(bytes))};
}

std::vector<std::string> FolderDisk::List(const std::string& prefix, const std::string& after,
                                          size_t count) {
  const size_t slash = prefix.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : prefix.substr(0, slash + 1);
  std::vector<std::string> names;
  std::error_code ignored;  // a folder that cannot be read has no files
  for (const fs::directory_entry& entry : fs::directory_iterator(PathTo(folder), ignored)) {
    std::string name = folder + entry.path().filename().string();
    if (name.starts_with(prefix) && name > after) names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  if (names.size() > count) names.resize(count);
  return names;
}

}  // namespace pando
