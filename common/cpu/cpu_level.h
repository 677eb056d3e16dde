// CpuLevel names the levels of x86-64 that one program supports (the psABI's x86-64-v2, v3 and v4).
// Loops that wider registers make faster are compiled once per level. The processor decides at the
// start which copy runs. Programs that are built for one instruction set (-Dcpu_arch) have one
// copy. A source with such loops offers them as a table: a struct whose members have the functions
// as their default values.
//
//   struct Loops { void (*add)(float* out, ...) = Add; };
//   PANDO_AT_EACH_CPU_LEVEL(Loops, AddLoops)       // AddLoops().add(...)
//
// The folder's meson.build compiles the source for each of cpu_levels. The copies are linked apart
// (tools/isolate.sh), so that no inline function of one level serves another. Threads: any.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "common/status.h"
#include "common/text.h"

namespace pando {

// --cpu-level and PANDO_CPU_LEVEL take these names.
enum class CpuLevel : uint8_t { kV2, kV3, kV4 };
template <>
inline constexpr auto kEnumNames<CpuLevel> = std::to_array({"v2", "v3", "v4"});

// Returns the highest level that this processor supports.
CpuLevel BestCpuLevel();
// Returns the level that runs: the chosen one, or the best one if none was chosen.
CpuLevel ChosenCpuLevel();
// Chooses a level. kInvalidArgument: it is unknown, or this processor or program lacks it.
Status ChooseCpuLevel(const std::string& name);

// The level that this source file is compiled for.
#ifndef PANDO_CPU_LEVEL
#define PANDO_CPU_LEVEL v2
#endif
#ifdef PANDO_HAS_CPU_LEVELS
inline constexpr bool kHasCpuLevels = true;
#define PANDO_CHOOSE_LEVEL(name) \
  *std::array{&name##_v2, &name##_v3, &name##_v4}[static_cast<size_t>(ChosenCpuLevel())]
#else
inline constexpr bool kHasCpuLevels = false;
#define PANDO_CHOOSE_LEVEL(name) name##_v2
#endif
#define PANDO_JOIN(name, level) name##_##level
#define PANDO_AT_LEVEL(name, level) PANDO_JOIN(name, level)

// Defines this level's table, and the function name(), which returns the chosen level's table.
#define PANDO_AT_EACH_CPU_LEVEL(Table, name)                     \
  extern const Table name##_v2, name##_v3, name##_v4;            \
  constinit const Table PANDO_AT_LEVEL(name, PANDO_CPU_LEVEL){}; \
  const Table& name() { return PANDO_CHOOSE_LEVEL(name); }

}  // namespace pando
