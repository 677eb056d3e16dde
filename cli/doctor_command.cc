// pando doctor: what this machine has, and what of it will be in a run's way.
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/doctor.h"
#include "cli/exit_codes.h"

namespace pando {
namespace {

int RunDoctor() {
  const MachineFacts facts = ReadMachine();
  fmt::print("{}", DescribeMachine(facts, ReadLibraries()));
  const std::vector<std::string> problems = FindProblems(facts);
  for (const std::string& problem : problems) fmt::print("problem: {}\n", problem);
  fmt::print("{}\n", problems.empty() ? "nothing is in a run's way"
                                      : fmt::format("{} to mend", problems.size()));
  return problems.empty() ? kExitCompleted : kExitFailed;
}

}  // namespace

Subcommand AddDoctorCommand(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "doctor", "Says what this machine has for a run, and what will be in its way.");
  command.footer(std::string("\nExit code 1 where something is to mend.\n\n") + kExitCodesHelp);
  return [] { return RunDoctor(); };
}

}  // namespace pando
