#include "tests/ptx/module.h"

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "common/check.h"

namespace pando::ptx {

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    std::fprintf(stderr, "PTX: %s is missing\n", path.c_str());
    std::abort();
  }
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string HostName(std::string name) {
  static constexpr std::string_view kMark = "_GLOBAL__N__";
  static constexpr std::string_view kHost = "12_GLOBAL__N_1";
  for (size_t at = name.find(kMark); at != std::string::npos; at = name.find(kMark, at)) {
    size_t begin = at;  // of the name's length, which at most two digits say
    while (begin > 0 && at - begin < 2 && std::isdigit(static_cast<unsigned char>(name[begin - 1])))
      --begin;
    PANDO_CHECK(begin < at);
    const size_t length = std::stoul(name.substr(begin, at - begin));
    name.replace(begin, at - begin + length, kHost);
    at = begin;
  }
  return name;
}

Module::Module(const std::string& ptx_path, const std::string& resources_path)
    : text_(ReadText(ptx_path)) {
  FindEntries();
  FindFiles();
  ReadResources(resources_path);
}

void Module::FindEntries() {
  static constexpr std::string_view kEntry = ".entry ";
  const std::string_view text = text_;
  for (size_t at = text.find(kEntry); at != std::string_view::npos; at = text.find(kEntry, at)) {
    at += kEntry.size();
    const size_t name_end = text.find('(', at), body_end = text.find("\n}", at);
    PANDO_CHECK(name_end < body_end && body_end != std::string_view::npos);
    const std::string name = HostName(std::string(text.substr(at, name_end - at)));
    entries_[name].text = text.substr(at, body_end + 2 - at);
    at = body_end;
  }
}

// .file 1 "/a/path"
void Module::FindFiles() {
  static constexpr std::string_view kFile = "\t.file\t";
  for (size_t at = text_.find(kFile); at != std::string::npos; at = text_.find(kFile, at)) {
    at += kFile.size();
    const size_t begin = text_.find('"', at) + 1, end = text_.find('"', begin);
    files_[static_cast<uint32_t>(std::stoul(text_.substr(at, begin - at)))] =
        text_.substr(begin, end - begin);
  }
}

// ptxas info    : Compiling entry function '_Z...' for 'sm_90'
// ptxas info    : Used 32 registers, used 1 barriers, 4096 bytes smem
void Module::ReadResources(const std::string& path) {
  std::istringstream lines(ReadText(path));
  std::string line, kernel;
  while (std::getline(lines, line)) {
    if (const size_t at = line.find("entry function '"); at != std::string::npos) {
      const size_t begin = line.find('\'', at) + 1;
      kernel = HostName(line.substr(begin, line.find('\'', begin) - begin));
    }
    if (const size_t at = line.find("Used "); at != std::string::npos && entries_.contains(kernel))
      entries_.at(kernel).hardware_registers =
          static_cast<uint32_t>(std::stoul(line.substr(at + 5)));
  }
  for (const auto& [name, entry] : entries_) PANDO_CHECK(entry.hardware_registers > 0);
}

}  // namespace pando::ptx
