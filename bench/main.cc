// pando-bench: what `pando bench` executes. A subcommand for each benchmark, and `report`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <string>

#include "bench/commands.h"
#include "cli/exit_codes.h"

namespace pando::bench {
namespace {

int Main(int argc, char** argv) {
  CLI::App app(
      "Measures Pando beside what this machine can do at most. What is compared is measured in\n"
      "turns; every figure has its samples, commit and machine.",
      "pando bench");
  app.footer(kExitCodesHelp);
  app.require_subcommand(0, 1);
  std::map<std::string, std::function<int()>> commands{
      {"push-pull", AddPushPull(app)}, {"step", AddStep(app)},       {"recovery", AddRecovery(app)},
      {"scaling", AddScaling(app)},    {"kernels", AddKernels(app)}, {"report", AddReport(app)},
      {"peer", AddPeer(app)}};
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
    fmt::print(stderr, "pando bench: {}; see pando bench --help\n", error.what());
    return kExitUsage;
  }
  if (app.get_subcommands().empty()) {
    fmt::print(stderr, "{}", app.help());
    return kExitUsage;
  }
  return commands.at(app.get_subcommands().front()->get_name())();
}

}  // namespace
}  // namespace pando::bench

int main(int argc, char** argv) { return pando::bench::Main(argc, argv); }
