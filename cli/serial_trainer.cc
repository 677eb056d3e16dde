#include <spdlog/spdlog.h>

#include "cli/exit_codes.h"
#include "cli/processes.h"

namespace pando {

// TODO(serial trainer): the job in one process.
int RunSerial(const SerialArgs&) {
  spdlog::error("this build has no serial trainer yet");
  return kExitFailed;
}

}  // namespace pando
