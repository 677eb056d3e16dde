// For the files of opcodes: a row of the table from a function of one lane.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "tests/ptx/operation.h"
#include "tests/ptx/warp.h"

namespace pando::ptx {

// A lane's predicate, as a type of operands.
struct Truth {
  bool value;
};

template <class T>
inline constexpr uint8_t kLaneBytes = sizeof(T);
template <>
inline constexpr uint8_t kLaneBytes<Truth> = 0;

template <class T>
class Source {
 public:
  Source(Warp& warp, const Operand& operand) : lanes_(warp.Lanes<T>(operand)) {}
  T operator[](uint32_t lane) const { return lanes_[lane]; }

 private:
  const T* lanes_;
};
template <>
class Source<Truth> {
 public:
  Source(Warp& warp, const Operand& operand) : bits_(warp.Predicate(operand)) {}
  bool operator[](uint32_t lane) const { return (bits_ >> lane & 1) != 0; }

 private:
  uint32_t bits_;
};

template <class D, class F, class... Sources>
void ComputeLanes(Warp& warp, const Operand& to, const Sources&... sources) {
  if constexpr (std::is_same_v<D, Truth>) {
    uint32_t bits = 0;
    for (uint32_t i = 0; i < kWarpLanes; ++i) bits |= uint32_t{F{}(sources[i]...)} << i;
    uint32_t& predicate = warp.Predicate(to);
    predicate = (predicate & ~warp.active()) | (bits & warp.active());
  } else {
    alignas(64) D values[kWarpLanes];
    for (uint32_t i = 0; i < kWarpLanes; ++i) values[i] = static_cast<D>(F{}(sources[i]...));
    warp.Store(to, values);
  }
}

// F computes inactive lanes too, whose values mean nothing.
template <class F, class D, class... S>
void RunOperation(Warp& warp, const Instruction& instruction) {
  [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    ComputeLanes<D, F>(warp, instruction.to[0], Source<S>(warp, instruction.from[kIndex])...);
  }
  (std::index_sequence_for<S...>());
}

// `function` is a lambda without state.
template <class D, class... S, class F>
void AddRow(Operations& table, const std::string& name, F) {
  table[name] = {&RunOperation<F, D, S...>, Control::kNone, {kLaneBytes<D>}, {kLaneBytes<S>...}};
}

// Integer opcodes; selections, moves and conversions; floating-point opcodes.
void AddIntegerRows(Operations& table);
void AddMoveRows(Operations& table);
void AddFloatRows(Operations& table);

}  // namespace pando::ptx
