#include <spdlog/spdlog.h>

#include "cli/exit_codes.h"
#include "cli/processes.h"

namespace pando {

// TODO(worker process): joins the worker's core to the world.
int RunWorker(const WorkerArgs&) {
  spdlog::error("this build has no worker process yet");
  return kExitFailed;
}

}  // namespace pando
