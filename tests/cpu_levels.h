// The CPU levels that this machine and build have (common/cpu/cpu_level.h), for tests that compare
// them.
#pragma once

#include <doctest/doctest.h>

#include "common/cpu/cpu_level.h"

namespace pando {

// Calls run() at each level, ascending, and leaves the best one chosen.
template <class Run>
void AtEachCpuLevel(Run run) {
  if (!kHasCpuLevels) return run();
  for (int level = 0; level <= static_cast<int>(BestCpuLevel()); ++level) {
    const std::string name = EnumName(static_cast<CpuLevel>(level));
    CAPTURE(name);
    REQUIRE(ChooseCpuLevel(name).ok());
    run();
  }
}

}  // namespace pando
