// RunFiles: a folder of a run, as its servers and workers see it: on this machine (FolderFiles), or
// at the scheduler (node/remote_files). Files are written whole and never changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/atomic_file.h"
#include "common/status.h"

namespace pando {

// Bytes that are one after another in a file, and lie elsewhere in memory.
using Pieces = std::vector<std::span<const std::byte>>;

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual uint64_t size() const = 0;  // bytes
  // kCorrupt: the file ends before; other errors are this machine's, or pass.
  virtual Status Read(uint64_t first_byte, std::span<std::byte> out) const = 0;
};

// kNotFound: it cannot be opened.
Result<std::unique_ptr<ReadableFile>> OpenFile(const std::string& path);

// Threads: one at a time, except Interrupt.
class RunFiles {
 public:
  virtual ~RunFiles() = default;
  virtual std::string location() const = 0;  // for people
  // Names that begin so, ascending.
  virtual Result<std::vector<std::string>> List(const std::string& prefix) = 0;
  // kNotFound: there is none of that name. It does not outlive this.
  virtual Result<std::unique_ptr<ReadableFile>> Open(const std::string& name) = 0;
  // The file is there whole and durable, or not at all. REQUIRES: no file had this name before.
  virtual Status Store(const std::string& name, const Pieces& pieces) = 0;
  // Any thread: what waits for another machine fails from now on.
  virtual void Interrupt() {}
};

class FolderFiles : public RunFiles {
 public:
  // `advice` ends what is said of a folder that is missing.
  explicit FolderFiles(std::string folder, std::string advice = "",
                       FileAccess access = FileAccess::kAsFolder)
      : folder_(std::move(folder)), advice_(std::move(advice)), access_(access) {}
  std::string location() const override { return folder_; }
  // None if the folder cannot be read.
  Result<std::vector<std::string>> List(const std::string& prefix) override;
  Result<std::unique_ptr<ReadableFile>> Open(const std::string& name) override;
  Status Store(const std::string& name, const Pieces& pieces) override;

 private:
  const std::string folder_;
  const std::string advice_;
  const FileAccess access_;
};

}  // namespace pando
