// FolderDisk keeps the files of a FileStore in the run folder (P45). Threads: one at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "files/file_store.h"

namespace pando {

class FolderDisk : public FileDisk {
 public:
  explicit FolderDisk(std::string run_dir) : run_dir_(std::move(run_dir)) {}
  bool Has(const std::string& name) override;
  // Also creates the folder that the name is in.
  Result<std::unique_ptr<FileDraft>> Create(const std::string& name) override;
  Result<Part> Read(const std::string& name, uint64_t offset, uint64_t size) override;
  uint64_t CountBytes(const std::string& part_of_name) override;
  std::vector<std::string> List(const std::string& prefix, const std::string& after,
                                size_t count) override;

 private:
  std::string PathTo(const std::string& name) const { return run_dir_ + "/" + name; }
  const std::string run_dir_;
};

}  // namespace pando
