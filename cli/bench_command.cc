// pando bench: runs the scripts of bench/python/pando_bench with Python.
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cli/commands.h"
#include "common/exit_codes.h"
#include "common/output.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr const char* kScripts = "pando_bench";

// Runs Python. Debian's own comes first, because Debian's library packages belong to it.
int RunPython(std::vector<std::string> words) {
  std::vector<char*> argv{nullptr};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  for (std::string python : {"/usr/bin/python3", "python3"}) {
    argv[0] = python.data();              // Python finds its libraries by this path
    execvp(python.c_str(), argv.data());  // returns only if it fails
  }
  Say("pando: cannot run python3: {}; apt-get install python3\n", std::strerror(errno));
  return kExitUsage;
}

int RunBench(const std::vector<std::string>& arguments) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path here = program.parent_path();
  std::string tried;
  // The scripts are beside this program, in the build folder, or in the installed place.
  for (const fs::path& place : {here / kScripts, here.parent_path() / "bench/python" / kScripts,
                                here.parent_path() / PANDO_LIBEXEC_DIR / "pando" / kScripts}) {
    if (fs::is_directory(place, error)) {
      std::vector<std::string> words{place.string(), "--pando", program.string()};
      words.insert(words.end(), arguments.begin(), arguments.end());
      return RunPython(std::move(words));
    }
    tried += fmt::format("\n  {}: {}", place.string(), error.message());
  }
  Say("pando: the scripts of the benchmarks are missing:{}\n"
      "build them with: ninja -C BUILD_FOLDER\n",
      tried);
  return kExitUsage;
}

}  // namespace

Subcommand AddBenchCommand(CLI::App& app) {
  CLI::App& command =
      DeclareRelay(app, "bench", "Measures the data path beside the limits of this machine.",
                   "\npando bench --help lists the benchmarks.\n");
  return [&command] { return RunBench(RemainingWords(command)); };
}

}  // namespace pando
