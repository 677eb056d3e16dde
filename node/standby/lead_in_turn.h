// LeadInTurn is a scheduler's life in a run with standbys: it stands by, leads, and stands by again
// if another scheduler has taken over.
#pragma once

#include <functional>

#include "node/standby/leadership.h"

namespace pando {

// Leads once. Returns the exit code; kExitFenced: another scheduler may lead.
using LeadOnce = std::function<Result<int>(const SchedulerArgs& args, Leadership& leadership)>;

// Returns the exit code. REQUIRES: args.etcd.
Result<int> LeadInTurn(SchedulerArgs args, ShutdownSignal& shutdown, ServiceNotice& service,
                       const LeadOnce& lead_once);

}  // namespace pando
