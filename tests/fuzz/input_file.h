// InputFile: an input as a file in memory, for readers that take a path.
// InputFolder: an empty folder that is removed when the process exits, for readers that need names.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "common/check.h"
#include "common/unique_fd.h"

namespace pando {

class InputFile {
 public:
  InputFile() : fd_(memfd_create("input", MFD_CLOEXEC)) { PANDO_CHECK(fd_.is_open()); }

  // Replaces the content.
  void Write(std::string_view bytes) {
    PANDO_CHECK(ftruncate(fd_.get(), 0) == 0);
    PANDO_CHECK(pwrite(fd_.get(), bytes.data(), bytes.size(), 0) == std::ssize(bytes));
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_.get()); }

 private:
  UniqueFd fd_;
};

class InputFolder {
 public:
  InputFolder() {
    std::string path = (std::filesystem::temp_directory_path() / "pando-fuzz-XXXXXX").string();
    PANDO_CHECK(mkdtemp(path.data()) != nullptr);
    path_ = path;
  }
  ~InputFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  InputFolder(const InputFolder&) = delete;
  InputFolder& operator=(const InputFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string Read(const std::string& name) const {
    std::ifstream file(path_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  // Another name of the file. Returns its path.
  std::string Link(const std::string& name, const InputFile& file) const {
    std::filesystem::create_symlink(file.path(), path_ + "/" + name);
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

// The input as text.
inline std::string_view TextIn(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace pando
