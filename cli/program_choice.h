// Which program a run's workers are: from the words of a command line to what is started.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"
#include "node/programs/program_process.h"

namespace pando {

// The program's words: `rest` is behind a subcommand's flags, `tail` behind "--". kInvalidArgument:
// there are both, or the first one is a flag that the subcommand does not have.
Result<std::vector<std::string>> ProgramWords(const std::vector<std::string>& rest,
                                              const std::vector<std::string>& tail);
// The words with the paths of what exists made absolute: a run may be resumed from another folder.
std::vector<std::string> AbsoluteCommand(std::vector<std::string> words);
// "train.py" runs with python3, and other names are looked up in PATH. The environment gets
// PANDO_LIBRARY (libpando_worker.so), PANDO_PROGRAM (this one), and in PYTHONPATH, behind what it
// had, the package pando_train; and malloc keeps freed memory.  kNotFound names what is missing.
Result<WorkerProgram> FindProgram(const std::vector<std::string>& words);

}  // namespace pando
