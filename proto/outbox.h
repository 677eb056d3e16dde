// Outbox is the interface through which a protocol core sends its messages.
#pragma once

#include "common/clock.h"
#include "proto/messages.h"

namespace pando {

// Sending never fails and never blocks. A message may be lost, so cores repeat important ones until
// they are answered (P10).
class Outbox {
 public:
  virtual ~Outbox() = default;
  virtual void Send(Envelope envelope) = 0;
};

}  // namespace pando
