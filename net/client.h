// A client that asks a running scheduler something and leaves: `pando status`.
#pragma once

#include <string>

#include "common/status.h"
#include "net/zmq_context.h"
#include "proto/outbox.h"

namespace pando {

// Asks the scheduler at `endpoint` for the run's status until it answers; its JSON. kUnavailable
// when nobody has answered by `deadline` (net/clock.h).
Result<std::string> RequestStatus(ZmqContext& context, const std::string& endpoint,
                                  Micros deadline);

}  // namespace pando
