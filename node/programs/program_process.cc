#include "node/programs/program_process.h"

#include <utility>

namespace pando {
namespace {

ProcessSpec WithProgram(const WorkerProgram& program, ProcessSpec spec) {
  spec.program = program.command[0];
  spec.args.assign(program.command.begin() + 1, program.command.end());
  spec.variables.insert(spec.variables.end(), program.variables.begin(), program.variables.end());
  return spec;
}

}  // namespace

void RunProgram(const WorkerProgram& program, const std::string& endpoint,
                std::optional<uint32_t> rank, ProcessSpec* spec) {
  *spec = WithProgram(program, std::move(*spec));
  spec->variables.push_back("PANDO_SCHEDULER=" + endpoint);
  spec->variables.push_back("PANDO_RANK=" + (rank ? std::to_string(*rank) : std::string()));
  spec->is_forked = program.is_preloaded;
}

ProcessSpec PreloadedSpec(const WorkerProgram& program, ProcessSpec spec) {
  spec.name = kPreloadedName;
  spec.title = "the preloaded process";
  return WithProgram(program, std::move(spec));
}

}  // namespace pando
