// What a protocol core is given to speak through, and the clock it is told.
#pragma once

#include <chrono>

#include "proto/messages.h"

namespace pando {

// Time since an arbitrary start, on a clock that never goes back. Cores are told it, never ask.
using Micros = std::chrono::microseconds;
inline constexpr Micros kNever = Micros::max();

// Outbox takes what a core wants sent. Sending never fails and never blocks: a message may be lost,
// and whatever matters is repeated until answered (P10).
class Outbox {
 public:
  virtual ~Outbox() = default;
  virtual void Send(Envelope envelope) = 0;
};

}  // namespace pando
