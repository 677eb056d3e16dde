// Functions with which the scheduler of a program's run gets the program's declaration (P43),
// before there is a plan. The scheduler process uses them.
#pragma once

#include "common/result.h"
#include "node/processes.h"
#include "node/shutdown_signal.h"

namespace pando {

// Publishes where the scheduler listens: in the run folder, and in args.endpoint_file or, if that
// is empty, on standard error. Returns the endpoint at which others reach it.
Result<std::string> TellEndpoint(const SchedulerArgs& args, const std::string& endpoint);

// Waits until a worker has declared the model and version 0, and writes both into the run folder:
// version 0 first, then job.toml, so that a restarted scheduler has both or waits again. Returns
// args with the declared job, and the bound endpoint. kUnavailable: run.start_timeout_ms has
// passed. kInterrupted: the wait was ended on request.
Result<SchedulerArgs> AwaitDeclaration(const SchedulerArgs& args, ShutdownSignal& shutdown,
                                       ServiceNotice& service);

}  // namespace pando
