// The clock that processes tell their protocol cores.
#pragma once

#include <chrono>

#include "proto/outbox.h"

namespace pando {

inline Micros SteadyNow() {
  return std::chrono::duration_cast<Micros>(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace pando
