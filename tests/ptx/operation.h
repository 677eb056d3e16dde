// The opcodes: what each reads, writes and does. KernelParser looks them up by their whole mnemonic
// ("add.s32").
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/ptx/kernel.h"

namespace pando::ptx {

struct Operation {
  Handler run = nullptr;
  Control control = Control::kNone;
  // Bytes of a lane of each operand; 0 is a predicate.
  std::vector<uint8_t> to_bytes;
  std::vector<uint8_t> from_bytes;
};
using Operations = std::unordered_map<std::string, Operation>;

// All opcodes except loads, stores and moves of vectors.
const Operations& AllOperations();

// Where shared memory lies among generic addresses.
inline constexpr uint64_t kSharedWindow = uint64_t{1} << 60;

// How an instruction reaches memory.
enum class Space : uint8_t { kGlobal, kShared, kLocal, kParameter, kGeneric };

struct MemoryOperation {
  bool is_store = false;
  Space space = Space::kGlobal;
  uint32_t vector_size = 1;
  uint32_t element_bytes = 4;
  bool is_signed = false;
  uint32_t register_bytes = 4;
};
// Returns null if no such operation exists.
Handler FindMemoryHandler(const MemoryOperation& operation);

// mov.b32 {a, b}, c and mov.b32 c, {a, b}: between a register and its parts.
void MoveParts(Warp& warp, const Instruction& instruction);

}  // namespace pando::ptx
