// A worker that is a program of the user's (P43), as `pando run` and `pando node` start it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "node/supervisor.h"

namespace pando {

struct WorkerProgram {
  std::vector<std::string> command;    // its program's path, and its arguments; empty: none
  std::vector<std::string> variables;  // "NAME=value", for its environment
};

// Makes `spec` run the program as a worker of the run at `endpoint`, which it reads in
// PANDO_SCHEDULER; its rank in PANDO_RANK (empty: any).  REQUIRES: there is a program.
void RunProgram(const WorkerProgram& program, const std::string& endpoint,
                std::optional<uint32_t> rank, ProcessSpec* spec);

}  // namespace pando
