// TemporaryFolder is a folder in the system's temporary folder that only this user may open. The
// destructor removes it with its content.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace pando {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = (std::filesystem::temp_directory_path(error_) / "pando-XXXXXX").string();
    if (!error_ && mkdtemp(path.data()) != nullptr) path_ = path;
  }
  ~TemporaryFolder() {
    if (!path_.empty()) std::filesystem::remove_all(path_, error_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }  // empty if the folder could not be created

 private:
  std::error_code error_;
  std::string path_;
};

}  // namespace pando
