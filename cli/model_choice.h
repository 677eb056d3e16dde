// Which model a command is about, and for what samples and classes. Called by the commands that
// show or judge models without training them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "cli/commands.h"
#include "common/status.h"
#include "models/graph.h"
#include "plan/job.h"

namespace pando {

struct ModelChoice {
  std::string name;          // of the zoo, or a network's file
  std::string input;         // "224x224x3"; empty: what the model was made for
  uint32_t class_count = 0;  // 0: also
  JobSource source;          // keys that a model's size depends on
};

// --input and --classes.  `choice` must outlive the parsing.
void AddModelShapeOptions(CLI::App& command, ModelChoice* choice);

// The job that trains it, its network's file read. `where`: the flag or argument that names it.
Result<Job> JobOf(const ModelChoice& choice, const std::string& where);
Result<Graph> GraphOf(const ModelChoice& choice, const Job& job);

}  // namespace pando
