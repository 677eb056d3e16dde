#include "node/program_process.h"

namespace pando {

void RunProgram(const WorkerProgram& program, const std::string& endpoint,
                std::optional<uint32_t> rank, ProcessSpec* spec) {
  spec->program = program.command[0];
  spec->args.assign(program.command.begin() + 1, program.command.end());
  spec->variables.insert(spec->variables.end(), program.variables.begin(), program.variables.end());
  spec->variables.push_back("PANDO_SCHEDULER=" + endpoint);
  spec->variables.push_back("PANDO_RANK=" + (rank ? std::to_string(*rank) : std::string()));
}

}  // namespace pando
