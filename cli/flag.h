// The functions with which a subcommand declares its flags and arguments. All commands use them.
// They hide CLI11, which takes five seconds to compile in each file that includes it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace pando {

// A flag or an argument of a command. Each method adds a property.
class Flag {
 public:
  // A rule for the text of a value; by default any text is valid. The help shows its description.
  class Rule {
   public:
    Rule() = default;
    explicit Rule(const CLI::Validator& validator);
    // `find_fault` returns what is wrong with the text, or "".
    explicit Rule(std::function<std::string(const std::string&)> find_fault);
    Rule operator|(const Rule& other) const;

   private:
    friend class Flag;
    std::shared_ptr<const CLI::Validator> validator_;
  };

  explicit Flag(CLI::Option* option) : option_(option) {}
  Flag Required() const;
  // Puts the flag in a group of the help. With an empty name the help does not show the flag.
  Flag Group(const std::string& name) const;
  Flag Check(const Rule& rule) const;
  Flag Excludes(Flag other) const;
  // The flag's value is a list with commas between its items.
  Flag TakesList() const;
  // The flag takes one value each time that it is given.
  Flag TakesOneEach() const;

 private:
  CLI::Option* option_;
};

// Accepts numbers from `min` to `max`, and NaN. T is int, uint32_t, uint64_t or double.
template <class T>
Flag::Rule InRange(T min, T max);
Flag::Rule AnyWordFrom(std::vector<std::string> words);

// `usage` is the option as the help shows it: "--out FILE", or "RUN_DIR" for a positional one.
// `value` must outlive the parsing. flag.cc lists the types of values.
template <class T>
Flag AddOption(CLI::App& command, const std::string& usage, T* value, const std::string& help,
               const Flag::Rule& check = Flag::Rule());
Flag AddFlag(CLI::App& command, const std::string& name, bool* value, const std::string& help);
// Adds an option that calls `take` with the given value.
Flag AddTaker(CLI::App& command, const std::string& usage,
              std::function<void(const std::string&)> take, const std::string& help);

// Declares a command. Its help ends with `notes`, which are whole lines, and with the exit codes.
CLI::App& DeclareCommand(CLI::App& app, const std::string& name, const std::string& description,
                         const std::string& notes);
// Declares a command whose words, and --help, are another program's. `footer` ends `pando help`.
CLI::App& DeclareRelay(CLI::App& app, const std::string& name, const std::string& description,
                       const std::string& footer);
// Adds a subcommand of a command. The user must give one of a command's subcommands.
CLI::App& AddPart(CLI::App& command, const std::string& name, const std::string& description);
// Returns whether the command line names the subcommand.
bool IsChosen(const CLI::App& part);
// Ends the parsing at the first word that is no flag of the command. RemainingWords has the rest.
void StopAtRest(CLI::App& command);
std::vector<std::string> RemainingWords(const CLI::App& command);

}  // namespace pando
