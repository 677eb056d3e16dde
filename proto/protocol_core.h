// ProtocolCore is the interface of the protocol's pure state machines: Scheduler, Lane, Session and
// GroupSession, and the smaller JoinCore, DeclarationIntake, FileStore and FileClient. The same
// code runs under ZeroMQ (net/event_loop) and, except GroupSession, in the simulator (tests/sim).
// A core has no socket, clock, thread, lock, file or global. It sends through its Outbox.
#pragma once

#include "proto/messages.h"
#include "proto/outbox.h"

namespace pando {

class ProtocolCore {
 public:
  virtual ~ProtocolCore() = default;
  virtual void OnMessage(Micros now, const Envelope& envelope) = 0;
  // Sends gathered messages, repeats unanswered ones, and handles expired leases and timeouts. Must
  // be called after every batch of messages and at NextDeadline().
  virtual void Tick(Micros now) = 0;
  // Returns when Tick must run next, even if no message arrives; kNever if it need not run.
  virtual Micros NextDeadline() const = 0;
};

}  // namespace pando
