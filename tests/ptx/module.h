// A file of PTX that nvcc made of one source, and where its kernels are.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace pando::ptx {

class Module {
 public:
  // Also reads what ptxas printed with --verbose, beside the PTX. Stops the process if a file is
  // missing.
  Module(const std::string& ptx_path, const std::string& resources_path);

  struct Entry {
    std::string_view text;  // from its name to the end of its body
    uint32_t hardware_registers = 0;
  };
  // By the name as g++ mangles it.
  const std::map<std::string, Entry>& entries() const { return entries_; }
  // Source files by their number in .loc.
  const std::map<uint32_t, std::string>& files() const { return files_; }

 private:
  void FindEntries();
  void FindFiles();
  void ReadResources(const std::string& path);

  std::string text_;
  std::map<std::string, Entry> entries_;
  std::map<uint32_t, std::string> files_;
};

// nvcc's unnamed namespaces have a name for each file, as in
// 49_GLOBAL__N__f2b1d67d_16_payload_codec_cu_1a22ebf7, and g++'s one for all.
std::string HostName(std::string name);
// Reads a whole file, or stops the process.
std::string ReadText(const std::string& path);

}  // namespace pando::ptx
