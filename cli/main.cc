// pando: the command line. Parses the subcommand and its options, and runs it.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "cli/commands.h"
#include "common/cpu/cpu_level.h"
#include "common/exit_codes.h"
#include "common/out_of_memory.h"
#include "common/output.h"
#include "common/system.h"
#include "common/text.h"
#include "job/job_file.h"
#include "job/job_key.h"

namespace pando {
namespace {

constexpr const char* kCpuLevelVariable = "PANDO_CPU_LEVEL";
constexpr const char* kFooter =
    "\n"
    "Start here:      pando train --epochs 3\n"
    "By hand:         pando scheduler job.toml, then pando server and pando worker with --join\n"
    "More of each:    pando COMMAND --help\n"
    "\n";

// Returns the flags or subcommands that `app` knows.
std::vector<std::string> KnownWords(const CLI::App& app, bool is_flag) {
  std::vector<std::string> words;
  if (is_flag) {
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
    }
  } else {
    for (const CLI::App* command : app.get_subcommands({})) words.push_back(command->get_name());
  }
  return words;
}

const CLI::App& Innermost(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : Innermost(*chosen.front());
}

// Returns for example "pando data inspect".
std::string NameWithParents(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return parent == nullptr ? "pando" : NameWithParents(*parent) + " " + app.get_name();
}

// Explains the first argument that no option takes.
int ReportUnknown(const CLI::App& app) {
  const CLI::App& place = Innermost(app);
  const bool is_command = &place != &app && place.get_subcommands({}).empty();
  const std::vector<std::string> unknown = place.remaining();
  std::string word = unknown.empty() ? "" : unknown.front();
  const auto flag =
      std::ranges::find_if(unknown, [](const std::string& text) { return text.starts_with("-"); });
  if (&place != &app && flag != unknown.end()) word = *flag;
  const bool is_flag = word.starts_with("-");
  const char* what = is_flag ? "flag" : is_command ? "argument" : "command";
  const std::string typed = word.substr(0, word.find('='));
  std::string hint;
  if (const JobKey* key = is_flag ? FindForeignKey(typed) : nullptr; key != nullptr)
    hint = fmt::format("here it is '{}'", key->flag);
  if (hint.empty()) hint = DidYouMean(typed, KnownWords(place, is_flag));
  if (hint.empty()) hint = fmt::format("see {} --help", NameWithParents(place));
  Say("pando: unknown {} '{}'; {}\n", what, typed, hint);
  return kExitUsage;
}

int PrintHelp(CLI::App& app, const std::string& topic) {
  if (topic == "job-file") {
    Print("{}", JobFileDoc());
    return kExitCompleted;
  }
  const CLI::App* command = topic.empty() ? &app : nullptr;
  for (const CLI::App* candidate : app.get_subcommands({})) {
    if (candidate->get_name() == topic) command = candidate;
  }
  if (command == nullptr) {
    Say("pando: no help on '{}'; see pando --help\n", topic);
    return kExitUsage;
  }
  Print("{}", command->help(topic.empty() ? "" : "pando"));
  return kExitCompleted;
}

// The commands that take --cpu-level, which also chooses the kernels of their child processes.
constexpr auto kComputingCommands =
    std::to_array({"train", "run", "server", "worker", "node", "resume", "evaluate", "predict",
                   "verify", "doctor"});

// Returns how a command that trains, or that shows runs, can use less memory.
const char* ChooseMemoryAdvice(const std::string& command) {
  constexpr auto kTrainingCommands = std::to_array<std::string_view>(
      {"train", "run", "scheduler", "server", "worker", "node", "resume", "verify"});
  if (command == "view") return ". Fewer runs take less";
  if (std::ranges::find(kTrainingCommands, command) == kTrainingCommands.end()) return "";
  return ". Less is taken with more --micro-batches, fewer --threads, a smaller --global-batch, or "
         "train.activation_checkpointing=true; pando plan shows the model's sizes";
}

void AddCpuLevelFlag(CLI::App& command, std::string* level) {
  command
      .add_option("--cpu-level", *level,
                  "kernels for x86-64-v2, v3 or v4 (default: the processor's best); part of a "
                  "worker's kind")
      ->type_name("LEVEL")
      ->envname(kCpuLevelVariable);
}

// Takes the words after "--" from the two commands that start a program: CLI11 would parse them.
std::vector<std::string> TakeProgram(int* argc, char** argv) {
  const bool starts_one =
      *argc > 1 && (std::string_view(argv[1]) == "run" || std::string_view(argv[1]) == "node");
  char** const end = argv + *argc;
  char** const dashes = starts_one ? std::find(argv, end, std::string_view("--")) : end;
  if (dashes == end) return {};
  *argc = static_cast<int>(dashes - argv);
  return {dashes + 1, end};
}

// Parses the command line. Returns an exit code if no command runs: after an error or a help text.
std::optional<int> Parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ExtrasError&) {
    return ReportUnknown(app);
  } catch (const CLI::RequiredError& error) {
    if (!Innermost(app).remaining().empty()) return ReportUnknown(app);
    Say("pando: {}\n", error.what());
    return kExitUsage;
  } catch (const CLI::ArgumentMismatch& error) {
    // CLI11 says of a flag that is given twice: "--lr: At Most 1 required but received 2".
    const std::string text = error.what();
    const size_t end = text.find(": At Most 1 required");
    Say("pando: {}\n", end == std::string::npos ? text : text.substr(0, end) + " is given twice");
    return kExitUsage;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
    Say("pando: {}\n", error.what());
    return kExitUsage;
  }
  return std::nullopt;
}

// Checks that arguments are UTF-8, as job files, logs and run folders are, which get them.
bool AreUtf8(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (IsUtf8(argv[i])) continue;
    Say("pando: argument {} must be UTF-8 text, got '{}'; rename the file, or make a symbolic link "
        "to it\n",
        i, AsUtf8(argv[i]));
    return false;
  }
  return true;
}

int Main(int argc, char** argv) {
  if (!AreUtf8(argc, argv)) return kExitUsage;
  const std::vector<std::string> program = TakeProgram(&argc, argv);
  CLI::App app(
      "Pando trains neural networks data-parallel on sharded parameter servers: the same weights,\n"
      "bit for bit, however many processes compute them.",
      "pando");
  app.set_version_flag("--version", fmt::format("pando {}", PandoVersion()));
  app.footer(std::string(kFooter) + kExitCodesHelp);
  app.require_subcommand(0, 1);
  std::map<std::string, Subcommand> commands{{"train", AddTrainCommand(app)},
                                             {"run", AddRunCommand(app, program)},
                                             {"scheduler", AddSchedulerCommand(app)},
                                             {"server", AddServerCommand(app)},
                                             {"worker", AddWorkerCommand(app)},
                                             {"node", AddNodeCommand(app, program)},
                                             {"resume", AddResumeCommand(app)},
                                             {"status", AddStatusCommand(app)},
                                             {"drain", AddDrainCommand(app)},
                                             {"snapshot", AddSnapshotCommand(app)},
                                             {"stop", AddStopCommand(app)},
                                             {"export", AddExportCommand(app)},
                                             {"evaluate", AddEvaluateCommand(app)},
                                             {"predict", AddPredictCommand(app)},
                                             {"verify", AddVerifyCommand(app)},
                                             {"keys", AddKeysCommand(app)},
                                             {"models", AddModelsCommand(app)},
                                             {"model", AddModelCommand(app)},
                                             {"data", AddDataCommand(app)},
                                             {"doctor", AddDoctorCommand(app)},
                                             {"plan", AddPlanCommand(app)},
                                             {"bench", AddBenchCommand(app)},
                                             {"timeline", AddTimelineCommand(app)},
                                             {"top", AddTopCommand(app)},
                                             {"view", AddViewCommand(app)}};
  std::string cpu_level;
  for (const char* name : kComputingCommands)
    AddCpuLevelFlag(*app.get_subcommand(name), &cpu_level);
  std::string topic;
  CLI::App* help = app.add_subcommand("help", "")->group("");
  help->add_option("TOPIC", topic);
  commands["help"] = [&] { return PrintHelp(app, topic); };
  if (const std::optional<int> exit_code = Parse(app, argc, argv)) return *exit_code;
  if (app.get_subcommands().empty()) {
    Say("{}", app.help());
    return kExitUsage;
  }
  if (!cpu_level.empty()) {
    if (Status s = ChooseCpuLevel(cpu_level); !s.ok()) return Report(s);
    setenv(kCpuLevelVariable, cpu_level.c_str(), /*overwrite=*/1);  // for child processes
  }
  constexpr uint64_t kFilesMin = 40;  // for an idle process with its sockets
  const std::string name = app.get_subcommands().front()->get_name();
  if (Status s = CheckFileLimit(kFilesMin, "pando"); name != "doctor" && !s.ok()) return Report(s);
  SetMemoryAdvice(ChooseMemoryAdvice(name));
  const Result<int> exit_code = commands.at(name)();
  return exit_code.ok() ? *exit_code : Report(exit_code.status());
}

}  // namespace
}  // namespace pando

int main(int argc, char** argv) {
  pando::EndWithParent();
  pando::OpenStandardStreams();
  // If a reader closes the pipe, as `head` does, the write fails and the run continues.
  std::signal(SIGPIPE, SIG_IGN);
  // If a file would exceed `ulimit -f`, the write fails and the process continues.
  std::signal(SIGXFSZ, SIG_IGN);
  pando::RaiseFileLimit();
  pando::EndWhenOutOfMemory();
  try {
    const int exit_code = pando::Main(argc, argv);
    const pando::Status output = pando::FinishOutput();
    if (output.ok() || exit_code != pando::kExitCompleted) return exit_code;
    return pando::Report(output);
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) throw;
    pando::EndOutOfMemory(0, "room for another thread");
  }
}
