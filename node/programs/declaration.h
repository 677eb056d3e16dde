// How the scheduler of a program's run gets what the program declares (P43), before there is a
// plan. Used by the scheduler process.
#pragma once

#include "common/status.h"
#include "node/processes.h"
#include "node/shutdown_signal.h"

namespace pando {

// Tells where the scheduler listens: the run folder, and args.endpoint_file or, where that is
// empty, standard error. Returns the endpoint at which others reach it.
Result<std::string> TellEndpoint(const SchedulerArgs& args, const std::string& endpoint);

// Waits until a worker has declared the model and version 0, and writes them into the run folder:
// version 0 first, then job.toml, so that a scheduler that is started again has both or waits
// again. Returns args with the declared job, and the endpoint that was bound.  kUnavailable after
// run.start_timeout_ms, kInterrupted.
Result<SchedulerArgs> AwaitDeclaration(const SchedulerArgs& args, ShutdownSignal& shutdown,
                                       ServiceNotice& service);

}  // namespace pando
