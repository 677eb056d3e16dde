#include <spdlog/spdlog.h>

#include "cli/exit_codes.h"
#include "cli/processes.h"

namespace pando {

// TODO(status process): joins the status's core to the world.
int RunStatus(const StatusArgs&) {
  spdlog::error("this build has no status process yet");
  return kExitFailed;
}

}  // namespace pando
