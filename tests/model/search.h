// The search visits every state that a configuration can reach, breadth first, so the first bad one
// has a shortest trace. Then it looks for states from which the job cannot reach its end by what is
// sure to happen (Edge::kRepeated) alone: a hang (I7). Luck with an old message does not count.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tests/model/configuration.h"

namespace pando::model {

struct SearchResult {
  size_t state_count = 0;
  size_t edge_count = 0;
  int view_count_max = 0;
  bool is_complete = false;  // false: states_max was reached
  Finding finding = Finding::kNone;
  std::string what;                // the invariant that is broken, for a loss
  std::vector<std::string> trace;  // the steps from the initial state to the finding
};

// Stops at the first loss. Hangs are looked for when there is none.
SearchResult Search(const Configuration& configuration, size_t states_max);

}  // namespace pando::model
