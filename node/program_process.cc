#include "node/program_process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <utility>

namespace pando {
namespace {

namespace fs = std::filesystem;

std::string FindInPath(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/bin:/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = (fs::path(folder) / name).string();
    if (access(candidate.c_str(), X_OK) == 0 && !fs::is_directory(candidate)) return candidate;
  }
  return "";
}

// The first of these that exists, beside this program's folder; empty: none.
std::string FindBeside(const std::vector<std::string>& candidates) {
  std::error_code ignored;
  const fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const std::string& candidate : candidates) {
    const fs::path path = (folder / candidate).lexically_normal();
    if (fs::exists(path, ignored)) return path.string();
  }
  return "";
}

}  // namespace

Result<std::vector<std::string>> ResolveCommand(const std::vector<std::string>& command) {
  if (command.empty())
    return InvalidArgument("no program to run: pando run [FLAGS] PROGRAM [ARGUMENTS]");
  std::vector<std::string> resolved = command;
  if (command[0].ends_with(".py")) {
    if (access(command[0].c_str(), R_OK) != 0)
      return NotFound(fmt::format("there is no script '{}' that can be read", command[0]));
    resolved.insert(resolved.begin(), {"python3", "-u"});
  }
  if (resolved[0].find('/') == std::string::npos) {
    const std::string path = FindInPath(resolved[0]);
    if (path.empty())
      return NotFound(fmt::format("there is no program '{}' in PATH; give its path", resolved[0]));
    resolved[0] = path;
  }
  if (access(resolved[0].c_str(), X_OK) != 0)
    return NotFound(fmt::format("'{}' is not a program that can be run", resolved[0]));
  return resolved;
}

void RunProgram(const std::vector<std::string>& command, const std::string& endpoint,
                std::optional<uint32_t> rank, ProcessSpec* spec) {
  spec->program = command[0];
  spec->args.assign(command.begin() + 1, command.end());
  spec->variables.push_back("PANDO_SCHEDULER=" + endpoint);
  if (rank) spec->variables.push_back(fmt::format("PANDO_RANK={}", *rank));
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) spec->variables.push_back(fmt::format("{}={}", name, value));
  };
  add("PANDO_LIBRARY", FindBeside({"../embed/libpando_worker.so", "../lib/libpando_worker.so"}));
  add("PANDO_PROGRAM", FindBeside({"pando"}));
  const std::string package = FindBeside({"../../python/pando_train/__init__.py"});
  if (package.empty()) return;
  const char* before = std::getenv("PYTHONPATH");
  const std::string folder = fs::path(package).parent_path().parent_path().string();
  add("PYTHONPATH", before == nullptr || *before == '\0' ? folder : before + (":" + folder));
}

}  // namespace pando
