// pando doctor: what this machine has, and what of it will be in a run's way.
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/doctor.h"
#include "common/exit_codes.h"

namespace pando {
namespace {

int RunDoctor() {
  const MachineFacts facts = ReadMachine();
  fmt::print("{}", DescribeMachine(facts, ReadLibraries()));
  const std::vector<std::string> problems = FindProblems(facts);
  for (const std::string& problem : problems) fmt::print("problem: {}\n", problem);
  fmt::print("{}\n", problems.empty() ? "no problems" : fmt::format("{} to fix", problems.size()));
  return problems.empty() ? kExitCompleted : kExitFailed;
}

}  // namespace

Subcommand AddDoctorCommand(CLI::App& app) {
  CLI::App& command =
      *app.add_subcommand("doctor", "Prints what this machine has for a run, and any problems.");
  command.footer(std::string("\nExit code 1 if there is a problem.\n\n") + kExitCodesHelp);
  return [] { return RunDoctor(); };
}

}  // namespace pando
