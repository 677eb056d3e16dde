// The interface through which a protocol core sends its messages.
#pragma once

#include "common/clock.h"
#include "proto/messages.h"

namespace pando {

// Outbox takes the messages of a core. Sending never fails and never blocks: a message may be lost,
// and important ones are repeated until answered (P10).
class Outbox {
 public:
  virtual ~Outbox() = default;
  virtual void Send(Envelope envelope) = 0;
};

}  // namespace pando
