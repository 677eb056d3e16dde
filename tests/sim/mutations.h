// The mutations that sim_mutated can switch on, by name, and where to look for them.
#pragma once

#include <span>
#include <string_view>

#include "common/mutation.h"
#include "tests/sim/swarm.h"

namespace pando::sim {

struct NamedMutation {
  std::string_view name;
  Mutation mutation;
};

std::span<const NamedMutation> Mutations();

}  // namespace pando::sim
