// Micros is the time since an arbitrary start, on a clock that never goes back. Processes read the
// clock and give their protocol cores the time; cores never ask for it.
#pragma once

#include <chrono>

namespace pando {

using Micros = std::chrono::microseconds;
inline constexpr Micros kNever = Micros::max();  // for timers without a deadline

inline Micros SteadyNow() {
  return std::chrono::duration_cast<Micros>(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace pando
