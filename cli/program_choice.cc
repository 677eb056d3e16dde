#include "cli/program_choice.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

namespace pando {
namespace {

namespace fs = std::filesystem;

std::string FindInPath(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/bin:/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = (fs::path(folder) / name).string();
    std::error_code ignored;
    if (access(candidate.c_str(), X_OK) == 0 && !fs::is_directory(candidate, ignored))
      return candidate;
  }
  return "";
}

// Returns the first candidate that exists, relative to this program's folder; empty if none does.
std::string FindBeside(const std::vector<std::string>& candidates) {
  std::error_code ignored;
  const fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const std::string& candidate : candidates) {
    const fs::path path = (folder / candidate).lexically_normal();
    if (fs::exists(path, ignored)) return path.string();
  }
  return "";
}

std::vector<std::string> ProgramVariables() {
  std::vector<std::string> variables;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) variables.push_back(fmt::format("{}={}", name, value));
  };
  add("PANDO_LIBRARY", FindBeside({"../embed/libpando_worker.so", "../lib/libpando_worker.so",
                                   "../lib/x86_64-linux-gnu/libpando_worker.so"}));
  add("PANDO_PROGRAM", FindBeside({"pando"}));
  // For glibc, as KeepFreedMemory does for Pando's workers: torch frees tensors in each step.
  if (std::getenv("MALLOC_MMAP_THRESHOLD_") == nullptr) {
    add("MALLOC_MMAP_THRESHOLD_", "1073741824");
    add("MALLOC_TRIM_THRESHOLD_", "4294967296");
  }
  const std::string package = FindBeside({"../../python/pando_train/__init__.py"});
  if (package.empty()) return variables;
  const char* before = std::getenv("PYTHONPATH");
  const std::string folder = fs::path(package).parent_path().parent_path().string();
  add("PYTHONPATH", before == nullptr || *before == '\0' ? folder : before + (":" + folder));
  return variables;
}

}  // namespace

Result<std::vector<std::string>> ProgramWords(const std::vector<std::string>& rest,
                                              const std::vector<std::string>& tail) {
  if (!rest.empty() && rest[0].starts_with("-")) {
    return InvalidArgument(fmt::format(
        "unknown flag '{}': see --help. A program's own flags come behind the program", rest[0]));
  }
  if (!rest.empty() && !tail.empty())
    return InvalidArgument(
        fmt::format("'{}' and '{}' are both a program; give one", rest[0], tail[0]));
  return rest.empty() ? tail : rest;
}

std::vector<std::string> AbsoluteCommand(std::vector<std::string> words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t equals = words[i].starts_with("-") ? words[i].find('=') : std::string::npos;
    const size_t at = equals == std::string::npos ? 0 : equals + 1;  // the file of "--data=FILE"
    const std::string path = words[i].substr(at);
    std::error_code ignored;
    const bool is_name = path.find('/') == std::string::npos;  // a program in PATH, a choice ...
    const bool is_file =
        is_name ? (i > 0 || path.ends_with(".py")) && fs::is_regular_file(path, ignored)
                : fs::exists(path, ignored);
    if (is_file) words[i].replace(at, std::string::npos, fs::absolute(path, ignored).string());
  }
  return words;
}

Result<WorkerProgram> FindProgram(const std::vector<std::string>& words) {
  if (words.empty())
    return InvalidArgument("no program to run: pando run [FLAGS] PROGRAM [ARGUMENTS]");
  WorkerProgram program{.command = words, .variables = ProgramVariables()};
  std::vector<std::string>& command = program.command;
  if (words[0].ends_with(".py")) {
    if (access(words[0].c_str(), R_OK) != 0)
      return NotFound(fmt::format("there is no script '{}' that can be read", words[0]));
    command.insert(command.begin(), {"python3", "-u"});
  }
  if (command[0].find('/') == std::string::npos) {
    const std::string path = FindInPath(command[0]);
    if (path.empty())
      return NotFound(fmt::format("there is no program '{}' in PATH; give its path", command[0]));
    command[0] = path;
  }
  if (access(command[0].c_str(), X_OK) != 0)
    return NotFound(fmt::format("'{}' is not a program that can be run", command[0]));
  return program;
}

}  // namespace pando
