// Turns the words of a command line into the program of a run's workers.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "node/programs/program_process.h"

namespace pando {

// Returns the program's words: `rest` comes after a subcommand's flags, `tail` after "--".
// kInvalidArgument: both are given, or the first word is a flag that the subcommand does not have.
Result<std::vector<std::string>> ProgramWords(const std::vector<std::string>& rest,
                                              const std::vector<std::string>& tail);
// Makes the paths of existing files absolute, since a run may be resumed from another folder.
std::vector<std::string> AbsoluteCommand(std::vector<std::string> words);
// Finds the program. "train.py" runs with python3; other names are looked up in PATH. Its
// environment gets PANDO_LIBRARY (libpando_worker.so), PANDO_PROGRAM (pando), and pando_train's
// folder at the end of PYTHONPATH. malloc keeps freed memory. kNotFound names what is missing.
Result<WorkerProgram> FindProgram(const std::vector<std::string>& words);

}  // namespace pando
