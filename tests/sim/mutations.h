// The mutations that sim_mutated can switch on, by name.
#pragma once

#include <span>
#include <string_view>

#include "tests/sim/mutation.h"

namespace pando::sim {

struct NamedMutation {
  std::string_view name;
  Mutation mutation;
};

std::span<const NamedMutation> Mutations();

}  // namespace pando::sim
