#include "cli/flag.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <utility>

#include "common/exit_codes.h"

namespace pando {
namespace {

// Returns "--out" for "--out FILE". The help shows the rest as the type.
std::string NameIn(const std::string& usage) { return usage.substr(0, usage.find(' ')); }

Flag WithType(CLI::Option* option, const std::string& usage) {
  const size_t space = usage.find(' ');
  if (space != std::string::npos) option->type_name(usage.substr(space + 1));
  return Flag(option);
}

}  // namespace

Flag::Rule::Rule(const CLI::Validator& validator)
    : validator_(std::make_shared<CLI::Validator>(validator)) {}

Flag::Rule::Rule(std::function<std::string(const std::string&)> find_fault)
    : Rule(CLI::Validator([find = std::move(find_fault)](std::string& text) { return find(text); },
                          "")) {}

Flag::Rule Flag::Rule::operator|(const Flag::Rule& other) const {
  return Flag::Rule(*validator_ | *other.validator_);
}

template <class T>
Flag::Rule InRange(T min, T max) {
  return Flag::Rule(CLI::Range(min, max));
}
template Flag::Rule InRange(int, int);
template Flag::Rule InRange(uint32_t, uint32_t);
template Flag::Rule InRange(uint64_t, uint64_t);
template Flag::Rule InRange(double, double);

Flag::Rule AnyWordFrom(std::vector<std::string> words) {
  return Flag::Rule(CLI::IsMember(std::move(words)));
}

Flag Flag::Required() const { return Flag(option_->required()); }

Flag Flag::Group(const std::string& name) const { return Flag(option_->group(name)); }

Flag Flag::Check(const Rule& rule) const {
  return Flag(rule.validator_ ? option_->check(*rule.validator_) : option_);
}

Flag Flag::Excludes(Flag other) const { return Flag(option_->excludes(other.option_)); }

Flag Flag::TakesList() const { return Flag(option_->delimiter(',')); }

Flag Flag::TakesOneEach() const { return Flag(option_->allow_extra_args(false)); }

template <class T>
Flag AddOption(CLI::App& command, const std::string& usage, T* value, const std::string& help,
               const Flag::Rule& check) {
  return WithType(command.add_option(NameIn(usage), *value, help), usage).Check(check);
}
#define PANDO_WITH_OPTIONS_OF(...)                                                         \
  template Flag AddOption(CLI::App&, const std::string&, __VA_ARGS__*, const std::string&, \
                          const Flag::Rule&);
PANDO_WITH_OPTIONS_OF(double)
PANDO_WITH_OPTIONS_OF(int)
PANDO_WITH_OPTIONS_OF(uint32_t)
PANDO_WITH_OPTIONS_OF(uint64_t)
PANDO_WITH_OPTIONS_OF(std::optional<uint64_t>)
PANDO_WITH_OPTIONS_OF(std::string)
PANDO_WITH_OPTIONS_OF(std::vector<std::string>)
#undef PANDO_WITH_OPTIONS_OF

Flag AddFlag(CLI::App& command, const std::string& name, bool* value, const std::string& help) {
  return Flag(command.add_flag(name, *value, help));
}

Flag AddTaker(CLI::App& command, const std::string& usage,
              std::function<void(const std::string&)> take, const std::string& help) {
  return WithType(command.add_option_function<std::string>(NameIn(usage), take, help), usage);
}

CLI::App& DeclareCommand(CLI::App& app, const std::string& name, const std::string& description,
                         const std::string& notes) {
  CLI::App* command = app.add_subcommand(name, description);
  return *command->footer(fmt::format("\n{}\n{}", notes, kExitCodesHelp));
}

CLI::App& DeclareRelay(CLI::App& app, const std::string& name, const std::string& description,
                       const std::string& footer) {
  CLI::App* command = app.add_subcommand(name, description);
  command->set_help_flag();
  return *command->prefix_command()->footer(footer);
}

CLI::App& AddPart(CLI::App& command, const std::string& name, const std::string& description) {
  command.require_subcommand(1);
  return *command.add_subcommand(name, description);
}

bool IsChosen(const CLI::App& part) { return part.parsed(); }

void StopAtRest(CLI::App& command) { command.prefix_command(); }

std::vector<std::string> RemainingWords(const CLI::App& command) { return command.remaining(); }

}  // namespace pando
