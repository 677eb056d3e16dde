// A worker that is a user's program (P43), as `pando run` and `pando node` start it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "node/fleet/process_group.h"

namespace pando {

struct WorkerProgram {
  std::vector<std::string> command;    // the program's path and its arguments; empty: none
  std::vector<std::string> variables;  // "NAME=value", for its environment
  bool is_preloaded = false;           // its workers are forked from one process
};

// Makes `spec` run the program as a worker of the run. The program reads `endpoint` in
// PANDO_SCHEDULER and its rank in PANDO_RANK (empty: any). REQUIRES: there is a program.
void RunProgram(const WorkerProgram& program, const std::string& endpoint,
                std::optional<uint32_t> rank, ProcessSpec* spec);
inline constexpr const char* kPreloadedName = "preloaded";  // also names its log
// Returns the process from which workers are forked; its log goes where `spec` says.
ProcessSpec PreloadedSpec(const WorkerProgram& program, ProcessSpec spec);

}  // namespace pando
