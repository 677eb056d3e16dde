// Micros: time since an arbitrary start, on a clock that never goes back. Protocol cores are given
// the time; they never ask for it.
#pragma once

#include <chrono>

namespace pando {

using Micros = std::chrono::microseconds;
inline constexpr Micros kNever = Micros::max();  // no deadline

}  // namespace pando
