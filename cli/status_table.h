// A run's status as text for people. node_commands and top_screen use it.
#pragma once

#include <string>

#include "scheduler/run_status.h"

namespace pando {

// Returns for example "waiting for parameters from server 1 for 5 ms".
std::string DoingText(const RunStatus::Node& node);
// Returns for example "3    worker 1     kill at step 7, noticed by socket, not recovered yet".
std::string FaultText(const FaultRecord& fault);
// Returns "waits: " and the reason; empty if the run waits for nothing.
std::string WaitText(const RunStatus& status);
// Returns "evaluated: version 7, test accuracy 98.50 %"; empty without an evaluation.
std::string EvaluatedText(const RunStatus& status);
std::string StatusTable(const RunStatus& status);

}  // namespace pando
