// ProtocolCore: a pure state machine of the protocol (server lane, worker session, scheduler). The
// same code runs under ZeroMQ (net/event_loop) and in the simulator (tests/sim). It has no socket,
// clock, thread, lock, file or global. It sends through the Outbox that it was given.
#pragma once

#include "proto/messages.h"
#include "proto/outbox.h"

namespace pando {

class ProtocolCore {
 public:
  virtual ~ProtocolCore() = default;
  virtual void OnMessage(Micros now, const Envelope& envelope) = 0;
  // Call it after every batch of messages and at NextDeadline(). It sends gathered messages,
  // repeats unanswered ones, and handles expired leases and timeouts.
  virtual void Tick(Micros now) = 0;
  // The time at which Tick must run next, even if no message arrives; kNever if there is none.
  virtual Micros NextDeadline() const = 0;
};

}  // namespace pando
