// Scenarios: seeds that once found a bug, by the name of what it was. Each stays a test.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tests/sim/swarm.h"

namespace pando::sim {

struct Scenario {
  std::string_view name;
  uint64_t seed = 0;
  Focus focus = Focus::kNone;
};

std::span<const Scenario> Scenarios();

}  // namespace pando::sim
