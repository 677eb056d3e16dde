// StandBy is the life of a scheduler that does not lead: it takes the run folder from the leader
// (MirrorReceiver), drops all other messages, and campaigns in etcd.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "net/transport.h"
#include "node/processes.h"
#include "node/shutdown_signal.h"
#include "node/standby/seat.h"

namespace pando {

// The run has ended while this scheduler stood by.
struct RunEnded {
  std::string how;
};

// Returns when this scheduler leads, or the run has ended. `begins`: it may begin the run.
// kInterrupted: a signal asked it to leave.
Result<std::variant<Lead, RunEnded>> StandBy(const SchedulerArgs& args, Seat& seat, bool begins,
                                             ShutdownSignal& shutdown, ServiceNotice& service);

// Binds, and waits while the socket of the life before still has the address.
Result<std::string> BindPatiently(Transport& transport, const std::string& endpoint);

}  // namespace pando
