// The clock from which processes give their protocol cores the time.
#pragma once

#include <chrono>

#include "common/micros.h"

namespace pando {

inline Micros SteadyNow() {
  return std::chrono::duration_cast<Micros>(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace pando
