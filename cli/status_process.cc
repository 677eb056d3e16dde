// `pando status`: the processes of a run and what each one is doing.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <optional>
#include <string>

#include "cli/status_table.h"
#include "common/clock.h"
#include "common/exit_codes.h"
#include "net/client.h"
#include "node/processes.h"

namespace pando {

int RunStatus(const StatusArgs& args) {
  ZmqContext context;
  const Micros deadline = SteadyNow() + std::chrono::milliseconds(args.start_timeout_ms);
  const Result<std::string> answer = RequestStatus(context, args.join, deadline);
  if (!answer.ok()) {
    spdlog::error("{}", answer.status().message());
    return ExitCodeOf(answer.status());
  }
  const std::optional<std::string> table = StatusTable(*answer);
  if (!table) {
    spdlog::error("the answer from {} is not a status; is it another version of pando?", args.join);
    return kExitFailed;
  }
  fmt::print("{}", args.json ? *answer + "\n" : *table);
  return kExitCompleted;
}

}  // namespace pando
