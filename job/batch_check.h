// Checks that a job's micro-batches can be computed. Callers have the job, its data and its model,
// and have not started a process yet.
#pragma once

#include <cstdint>

#include "common/status.h"
#include "kernels/device.h"
#include "models/network.h"
#include "plan/job.h"
#include "plan/job_plan.h"
#include "plan/step_plan.h"

namespace pando {

// kInvalidArgument where a batch norm has one value of a channel to normalise, which would always
// be 0: it is over one pixel, and a step has micro-batches of one sample. Names layer, step and
// keys.
Status CheckMicroBatches(const Job& job, const Model& model, const StepPlan& steps);

// kInvalidArgument where one computing thread's activations take more than `memory_bytes`.
Status CheckMemory(const Job& job, const Model& model, const StepPlan& steps,
                   uint64_t memory_bytes);
uint64_t MachineMemoryBytes();  // this machine's

// What a worker takes of a GPU's memory, beside what its context and NVIDIA's libraries take when
// it is opened.
struct GpuMemoryPlan {
  // Copies of the version at work, and of the one evaluated; encoded ones where it decodes.
  uint64_t parameters = 0;
  // As many flat vectors as the tree's sums take (docs/protocol.md, section 12), and encoded ones.
  uint64_t gradients = 0;
  uint64_t network = 0;  // activations, their gradients, what else is kept, scratch
  uint64_t batches = 0;  // samples on their way into the network
  uint64_t total() const { return parameters + gradients + network + batches; }
};
// kInvalidArgument where micro-batches of `samples` are more than any plan is made for.
Status CheckGpuSamples(Device device, const JobPlan& plan, const Model& model, uint64_t samples);
// With micro-batches of `samples`.  REQUIRES: the device is a GPU; CheckGpuSamples.
GpuMemoryPlan PlanGpuMemory(Device device, const JobPlan& plan, const Model& model,
                            uint64_t samples);

// Of the device that a worker computes on: CheckMemory with this machine's memory; on a GPU with
// what is free there, and the largest micro-batch that would fit.
Status CheckDeviceMemory(Device device, const JobPlan& plan, const Model& model);

}  // namespace pando
