#include <spdlog/spdlog.h>

#include "cli/exit_codes.h"
#include "cli/processes.h"

namespace pando {

// TODO(scheduler process): joins the scheduler's core to the world.
int RunScheduler(const SchedulerArgs&) {
  spdlog::error("this build has no scheduler process yet");
  return kExitFailed;
}

}  // namespace pando
