// Loads and stores, and moves between a register and its parts.
#include "tests/ptx/block.h"
#include "tests/ptx/operation.h"
#include "tests/ptx/warp.h"

namespace pando::ptx {
namespace {

uint64_t Address(Warp& warp, const Instruction& instruction, uint32_t lane) {
  const Operand& base = instruction.from[0];
  if (base.bytes == sizeof(uint64_t))
    return warp.Lanes<uint64_t>(base)[lane] + static_cast<uint64_t>(instruction.address_offset);
  return warp.Lanes<uint32_t>(base)[lane] + static_cast<uint32_t>(instruction.address_offset);
}

template <Space kSpace>
std::byte* Access(Warp& warp, uint32_t lane, uint64_t address, uint32_t bytes, bool is_store) {
  if constexpr (kSpace == Space::kGlobal) {
    return warp.block().AccessGlobal(warp, lane, address, bytes, is_store);
  } else if constexpr (kSpace == Space::kShared) {
    return warp.block().AccessShared(warp, lane, address, bytes, is_store);
  } else if constexpr (kSpace == Space::kLocal) {
    return warp.AccessLocal(lane, address, bytes, is_store);
  } else if constexpr (kSpace == Space::kParameter) {
    return warp.AccessParameter(lane, address, bytes);
  } else {
    if (address >= kSharedWindow)
      return warp.block().AccessShared(warp, lane, address - kSharedWindow, bytes, is_store);
    return warp.block().AccessGlobal(warp, lane, address, bytes, is_store);
  }
}

// Element is the memory's type, and Register the registers' one of the same sign.
template <Space kSpace, class Element, class Register, uint32_t kVector>
void Load(Warp& warp, const Instruction& instruction) {
  // Lanes in a row that load the same bytes need one check, where lanes are not told apart.
  constexpr bool kLanesAreAlike = kSpace == Space::kGlobal || kSpace == Space::kParameter;
  uint64_t checked = 0;
  const std::byte* from = nullptr;
  ForEachLane(warp.active(), [&](uint32_t lane) {
    const uint64_t address = Address(warp, instruction, lane);
    if (!kLanesAreAlike || from == nullptr || address != checked)
      from = Access<kSpace>(warp, lane, address, sizeof(Element) * kVector, /*is_store=*/false);
    checked = address;
    for (uint32_t i = 0; i < kVector; ++i) {
      Element element{};
      if (from != nullptr) std::memcpy(&element, from + i * sizeof(Element), sizeof(Element));
      warp.Lanes<Register>(instruction.to[i])[lane] = static_cast<Register>(element);
    }
  });
}

template <Space kSpace, class Element, class Register, uint32_t kVector>
void Keep(Warp& warp, const Instruction& instruction) {
  ForEachLane(warp.active(), [&](uint32_t lane) {
    std::byte* to = Access<kSpace>(warp, lane, Address(warp, instruction, lane),
                                   sizeof(Element) * kVector, /*is_store=*/true);
    if (to == nullptr) return;
    for (uint32_t i = 0; i < kVector; ++i) {
      const auto element =
          static_cast<Element>(warp.Lanes<Register>(instruction.from[1 + i])[lane]);
      std::memcpy(to + i * sizeof(Element), &element, sizeof(Element));
    }
  });
}

template <Space kSpace, class Element, class Register>
Handler ByVector(const MemoryOperation& operation) {
  if (operation.vector_size == 1)
    return operation.is_store ? &Keep<kSpace, Element, Register, 1>
                              : &Load<kSpace, Element, Register, 1>;
  if (operation.vector_size == 2)
    return operation.is_store ? &Keep<kSpace, Element, Register, 2>
                              : &Load<kSpace, Element, Register, 2>;
  if (operation.vector_size == 4)
    return operation.is_store ? &Keep<kSpace, Element, Register, 4>
                              : &Load<kSpace, Element, Register, 4>;
  return nullptr;
}

template <Space kSpace, class Unsigned, class Signed>
Handler ByRegister(const MemoryOperation& operation) {
  const uint32_t bytes = operation.register_bytes;
  if (operation.is_signed) {
    if (bytes == 2) return ByVector<kSpace, Signed, int16_t>(operation);
    if (bytes == 4) return ByVector<kSpace, Signed, int32_t>(operation);
    if (bytes == 8) return ByVector<kSpace, Signed, int64_t>(operation);
  } else {
    if (bytes == 2) return ByVector<kSpace, Unsigned, uint16_t>(operation);
    if (bytes == 4) return ByVector<kSpace, Unsigned, uint32_t>(operation);
    if (bytes == 8) return ByVector<kSpace, Unsigned, uint64_t>(operation);
  }
  return nullptr;
}

template <Space kSpace>
Handler ByElement(const MemoryOperation& operation) {
  if (operation.register_bytes < operation.element_bytes) return nullptr;
  if (operation.element_bytes == 1) return ByRegister<kSpace, uint8_t, int8_t>(operation);
  if (operation.element_bytes == 2) return ByRegister<kSpace, uint16_t, int16_t>(operation);
  if (operation.element_bytes == 4) return ByRegister<kSpace, uint32_t, int32_t>(operation);
  if (operation.element_bytes == 8) return ByRegister<kSpace, uint64_t, int64_t>(operation);
  return nullptr;
}

}  // namespace

Handler FindMemoryHandler(const MemoryOperation& operation) {
  switch (operation.space) {
    case Space::kGlobal:
      return ByElement<Space::kGlobal>(operation);
    case Space::kShared:
      return ByElement<Space::kShared>(operation);
    case Space::kLocal:
      return ByElement<Space::kLocal>(operation);
    case Space::kParameter:
      return operation.is_store ? nullptr : ByElement<Space::kParameter>(operation);
    case Space::kGeneric:
      return ByElement<Space::kGeneric>(operation);
  }
  return nullptr;
}

void MoveParts(Warp& warp, const Instruction& instruction) {
  const bool splits = instruction.to_count > 1;
  const Operand& whole = splits ? instruction.from[0] : instruction.to[0];
  const Operand* parts = splits ? instruction.to.data() : instruction.from.data();
  const uint32_t count = splits ? instruction.to_count : instruction.from_count;
  const uint32_t bytes = whole.bytes / count;
  ForEachLane(warp.active(), [&](uint32_t lane) {
    for (uint32_t i = 0; i < count; ++i) {
      std::byte* part = warp.Lanes<std::byte>(parts[i]) + lane * bytes;
      std::byte* place = warp.Lanes<std::byte>(whole) + lane * whole.bytes + i * bytes;
      std::memcpy(splits ? part : place, splits ? place : part, bytes);
    }
  });
}

}  // namespace pando::ptx
