// A kernel's PTX, decoded once: instructions with the places of their operands in a warp's
// registers. KernelParser makes it, and Warp executes it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pando::ptx {

inline constexpr uint32_t kWarpLanes = 32;

class Warp;
struct Instruction;
// Executes an instruction for the warp's active lanes.
using Handler = void (*)(Warp& warp, const Instruction& instruction);

// A register, a constant or a special register. Its lanes lie one after the other: of a predicate,
// one word has all.
struct Operand {
  uint32_t number = 0;
  uint32_t offset = 0;  // in the warp's registers, in bytes
  uint8_t bytes = 0;    // per lane; 0: a predicate
};

enum class Control : uint8_t { kNone, kBranch, kExit, kBarrier, kShuffle };

struct Instruction {
  Handler run = nullptr;
  Control control = Control::kNone;
  bool has_guard = false;
  bool guard_is_negated = false;
  uint8_t to_count = 0;
  uint8_t from_count = 0;
  Operand guard;
  std::array<Operand, 4> to;
  std::array<Operand, 5> from;  // of loads and stores, the address comes first
  int64_t address_offset = 0;
  uint32_t target = 0;  // of a branch
  uint32_t line = 0;    // in Kernel::lines
};

enum class Special : uint8_t {
  kThreadX,
  kThreadY,
  kThreadZ,
  kThreadsX,
  kThreadsY,
  kThreadsZ,
  kBlockX,
  kBlockY,
  kBlockZ,
  kBlocksX,
  kBlocksY,
  kBlocksZ,
  kLane,
};

struct Constant {
  Operand operand;
  uint64_t bits = 0;
};

struct Parameter {
  size_t offset = 0;
  size_t size_bytes = 0;
};

struct Kernel {
  std::string name;  // as g++ mangles it
  std::vector<Instruction> code;
  std::vector<std::string> lines;  // places in the source, as "FILE:LINE"; the first is unknown
  std::vector<Parameter> parameters;
  size_t parameter_bytes = 0;
  std::vector<Constant> constants;
  std::map<Special, Operand> specials;
  uint32_t register_number = 0;  // virtual ones, with constants and special registers
  size_t register_bytes = 0;     // of a warp
  size_t shared_bytes = 0;
  std::vector<Parameter> shared_variables;  // a gap is between any two
  size_t shared_variable_bytes = 0;         // without the gaps
  size_t local_bytes = 0;                   // per thread
  uint32_t access_shift = 4;  // log2 of the smallest access to shared or global memory
  uint32_t threads_max = 1024;
  uint32_t hardware_registers = 0;  // per thread, by ptxas
};

}  // namespace pando::ptx
