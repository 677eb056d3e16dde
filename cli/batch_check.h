// Whether a job's micro-batches can be computed: where job, data and model have met, and before
// anything is started.
#pragma once

#include <cstdint>

#include "common/job.h"
#include "common/status.h"
#include "common/step_plan.h"
#include "models/network.h"

namespace pando {

// kInvalidArgument where a batch norm has one value of a channel to normalise, which would always
// be 0: it is over one pixel, and a step has micro-batches of one sample. Names layer, step and
// keys.
Status CheckMicroBatches(const Job& job, const Model& model, const StepPlan& steps);

// kInvalidArgument where one computing thread's activations take more than `memory_bytes`.
Status CheckMemory(const Job& job, const Model& model, const StepPlan& steps,
                   uint64_t memory_bytes);
uint64_t MachineMemoryBytes();  // this machine's

}  // namespace pando
