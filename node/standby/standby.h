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

// Returns when this scheduler leads, or the run has ended. `may_begin`: Seat::TryToLead.
// kInterrupted: a signal asked it to leave.
Result<Turn> StandBy(const SchedulerArgs& args, Seat& seat, MayBegin may_begin,
                     ShutdownSignal& shutdown, ServiceNotice& service);

// Binds, and waits while another socket has the address: that of the life before, or of a process
// that dialed it (EndSelfConnections), which with keys Linux remembers for a minute.
Result<std::string> BindPatiently(Transport& transport, const std::string& endpoint,
                                  const ShutdownSignal& shutdown);
// The error of a scheduler whose next port, for its file store, cannot be bound.
Status NoPortForFiles(const std::string& why);

}  // namespace pando
