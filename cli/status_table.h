// A run's status, for people. Used by node_commands and top_screen.
#pragma once

#include <string>

#include "scheduler/run_status.h"

namespace pando {

// "waiting for parameters from server 1 for 5 ms"
std::string DoingText(const RunStatus::Node& node);
// "3    worker 1     kill at step 7, noticed by socket, not recovered yet"
std::string FaultText(const FaultRecord& fault);
// "waits: " and the reason; empty: the run waits for nothing.
std::string WaitText(const RunStatus& status);
// "evaluated: version 7, test accuracy 98.50 %"; empty: nothing is.
std::string EvaluatedText(const RunStatus& status);
std::string StatusTable(const RunStatus& status);

}  // namespace pando
