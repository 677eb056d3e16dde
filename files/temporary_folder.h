// TemporaryFolder: a folder of this user alone in the system's temporary folder, which goes with
// all that is in it.
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
  const std::string& path() const { return path_; }  // empty where it could not be made

 private:
  std::error_code error_;
  std::string path_;
};

}  // namespace pando
