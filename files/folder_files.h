// FolderFiles is a run's folder on this machine.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/atomic_file.h"
#include "files/run_files.h"

namespace pando {

// kNotFound: the file cannot be opened.
Result<std::unique_ptr<ReadableFile>> OpenFile(const std::string& path);

class FolderFiles : public RunFiles {
 public:
  // `advice` ends the error about a missing folder.
  explicit FolderFiles(std::string folder, std::string advice = "",
                       FileAccess access = FileAccess::kAsFolder)
      : folder_(std::move(folder)), advice_(std::move(advice)), access_(access) {}
  std::string location() const override { return folder_; }
  // Returns no names if the folder cannot be read.
  Result<std::vector<std::string>> List(const std::string& prefix) override;
  Result<std::unique_ptr<ReadableFile>> Open(const std::string& name) override;
  Status Store(const std::string& name, const Pieces& pieces) override;

 private:
  const std::string folder_;
  const std::string advice_;
  const FileAccess access_;
};

}  // namespace pando
