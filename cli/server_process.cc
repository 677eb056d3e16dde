#include <spdlog/spdlog.h>

#include "cli/exit_codes.h"
#include "cli/processes.h"

namespace pando {

// TODO(server process): joins the server's core to the world.
int RunServer(const ServerArgs&) {
  spdlog::error("this build has no server process yet");
  return kExitFailed;
}

}  // namespace pando
