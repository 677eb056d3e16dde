// TempFolder: an empty folder that goes away with the test.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace pando {

class TempFolder {
 public:
  TempFolder() {
    std::string path = (std::filesystem::temp_directory_path() / "pando-test-XXXXXX").string();
    REQUIRE(mkdtemp(path.data()) != nullptr);
    path_ = path;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  // Returns the file's path.
  std::string Write(const std::string& name, const std::vector<uint8_t>& bytes) const {
    std::ofstream file(File(name), std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    REQUIRE_MESSAGE(file.good(), "cannot write " << File(name));
    return File(name);
  }

 private:
  std::string path_;
};

}  // namespace pando
