// For tests that wait for something to happen.
#pragma once

#include <chrono>

namespace pando {

// Far beyond what any single event here takes, so that a loaded machine fails no test.
inline constexpr std::chrono::seconds kEventDeadline{120};

}  // namespace pando
