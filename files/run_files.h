// RunFiles: a run's folder as its servers and workers see it, on this machine (folder_files.h) or
// at the scheduler (node/remote_files). Files are written whole and never changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"

namespace pando {

// Spans in memory whose bytes follow one another in a file.
using Pieces = std::vector<std::span<const std::byte>>;

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual uint64_t size() const = 0;  // bytes
  // kCorrupt: the file ends too early. Other errors come from this machine, or may pass.
  virtual Status Read(uint64_t first_byte, std::span<std::byte> out) const = 0;
};

// Threads: one at a time, except Interrupt.
class RunFiles {
 public:
  virtual ~RunFiles() = default;
  virtual std::string location() const = 0;  // for people
  // Returns the names that begin with `prefix`, ascending.
  virtual Result<std::vector<std::string>> List(const std::string& prefix) = 0;
  // kNotFound: there is no such file. The result does not outlive this object.
  virtual Result<std::unique_ptr<ReadableFile>> Open(const std::string& name) = 0;
  // Stores the file whole and durable, or not at all. REQUIRES: no file had this name before.
  virtual Status Store(const std::string& name, const Pieces& pieces) = 0;
  // Any thread. After this call, operations that wait for another machine fail.
  virtual void Interrupt() {}
};

}  // namespace pando
