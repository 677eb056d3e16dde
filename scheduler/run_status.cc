#include "scheduler/run_status.h"

#include "files/json_fields.h"

namespace pando {

std::string StatusText(const RunStatus& status) { return JsonText(status); }

Result<RunStatus> ParseStatus(std::string_view json) {
  RunStatus status;
  PANDO_RETURN_IF_ERROR(ReadJson(json, &status, Missing::kKept));
  if (status.phase.empty()) return Corrupt("expected a run's status");
  return status;
}

}  // namespace pando
