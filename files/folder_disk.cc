#include "files/folder_disk.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "common/atomic_file.h"
#include "files/folder_files.h"

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

bool FolderDisk::Has(const std::string& name) {
  std::error_code ignored;  // if it fails, the file is written, and that error says why
  return fs::is_regular_file(PathTo(name), ignored);
}

Result<std::unique_ptr<FileDraft>> FolderDisk::Create(const std::string& name) {
  std::error_code ignored;  // if it fails, creating the file says why
  const fs::path folder = fs::path(PathTo(name)).parent_path();
  fs::create_directory(folder, folder.parent_path(), ignored);  // with its parent's mode
  PANDO_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(PathTo(name), FileAccess::kAsFolder));
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

uint64_t FolderDisk::CountBytes(const std::string& part_of_name) {
  uint64_t bytes = 0;
  for (const char* folder : {"snapshots", "timeline"}) {
    std::error_code ignored;  // a removed file does not count
    for (const auto& entry : fs::directory_iterator(PathTo(folder), ignored)) {
      if (entry.path().filename().string().find(part_of_name) == std::string::npos) continue;
      const uint64_t size = entry.file_size(ignored);
      if (!ignored) bytes += size;
    }
  }
  return bytes;
}

std::vector<std::string> FolderDisk::List(const std::string& prefix, const std::string& after,
                                          size_t count) {
  const size_t slash = prefix.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : prefix.substr(0, slash + 1);
  const auto found = FolderFiles(PathTo(folder)).List(prefix.substr(folder.size()));
  std::vector<std::string> names;
  for (const std::string& file : *found) {
    if (names.size() < count && folder + file > after) names.push_back(folder + file);
  }
  return names;
}

}  // namespace pando
