// Await asks until a condition holds that another thread or process makes true.
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <functional>

#include "common/clock.h"
#include "tests/deadline.h"

namespace pando {

inline void Await(const std::function<bool()>& is_so) {
  for (const Micros deadline = SteadyNow() + kEventDeadline; !is_so(); usleep(1000))
    REQUIRE(SteadyNow() < deadline);
}

}  // namespace pando
