// pando bench: executes the program built in bench/, which this one does not link.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cli/commands.h"
#include "cli/exit_codes.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProgram = "pando-bench";

// Beside this program; in the build folder; where it is installed.
std::vector<fs::path> Places() {
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  return {here / kProgram, here.parent_path() / "bench" / kProgram,
          here.parent_path() / PANDO_LIBEXEC_DIR / "pando" / kProgram};
}

int RunBench(const std::vector<std::string>& arguments) {
  std::vector<std::string> words{kProgram};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::string tried;
  for (const fs::path& place : Places()) {
    execv(place.c_str(), argv.data());  // returns only where it cannot
    tried += fmt::format("\n  {}: {}", place.string(), std::strerror(errno));
  }
  fmt::print(stderr,
             "pando: the benchmarks are a program of their own, {}, which is not there:{}\n"
             "build it with: ninja -C BUILD_FOLDER bench/{}\n",
             kProgram, tried, kProgram);
  return kExitUsage;
}

}  // namespace

Subcommand AddBenchCommand(CLI::App& app) {
  CLI::App& command =
      *app.add_subcommand("bench", "Measures the data path beside what this machine can do.");
  command.set_help_flag();  // the program has its own
  command.prefix_command();
  command.footer("\npando bench --help lists the benchmarks that there are.\n");
  return [&command] { return RunBench(command.remaining()); };
}

}  // namespace pando
