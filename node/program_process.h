// A worker that is a program of the user's: how `pando run` and `pando node` start it, and what
// they tell it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "node/supervisor.h"

namespace pando {

// The command with its program's path: "train.py" runs with python3, other names are looked up in
// PATH.  kNotFound names what is missing.
Result<std::vector<std::string>> ResolveCommand(const std::vector<std::string>& command);

// Makes `spec` run the command as a worker of the run at `endpoint`. The program reads the
// variables PANDO_SCHEDULER, PANDO_RANK (none: any), PANDO_LIBRARY (libpando_worker.so) and
// PANDO_PROGRAM (this one); PYTHONPATH has the package pando_train behind what it had. REQUIRES:
// the command is resolved.
void RunProgram(const std::vector<std::string>& command, const std::string& endpoint,
                std::optional<uint32_t> rank, ProcessSpec* spec);

}  // namespace pando
