// Checks that a job's micro-batches can be computed. Callers have the job, its data and its model,
// and have not started a process yet.
#pragma once

#include <cstdint>

#include "common/status.h"
#include "kernels/device.h"
#include "models/model.h"
#include "plan/job.h"
#include "plan/job_plan.h"
#include "plan/step_plan.h"

namespace pando {

// kInvalidArgument: a batch norm has only one value per channel to normalise, which would always
// become 0. It is then over one pixel, and a step has micro-batches of one sample. The error names
// layer, step and keys.
Status CheckMicroBatches(const Job& job, const Model& model, const StepPlan& steps);

// kInvalidArgument: one computing thread's activations take more than `memory_bytes`.
Status CheckMemory(const Job& job, const Model& model, const StepPlan& steps,
                   uint64_t memory_bytes);
uint64_t MachineMemoryBytes();  // this machine's

// The memory that a worker takes on a GPU, besides that of its context and NVIDIA's libraries when
// it is opened.
struct GpuMemoryPlan {
  // Copies of the current version and of the evaluated one; encoded ones if it decodes.
  uint64_t parameters = 0;
  // The flat vectors for the tree's sums (docs/protocol.md, section 12), and encoded ones.
  uint64_t gradients = 0;
  uint64_t network = 0;  // activations, their gradients, other kept values, scratch
  uint64_t batches = 0;  // samples that are being copied into the network
  uint64_t total() const { return parameters + gradients + network + batches; }
};
// kInvalidArgument: micro-batches of `samples` are larger than any plan supports.
Status CheckGpuSamples(Device device, const JobPlan& plan, const Model& model, uint64_t samples);
// Plans micro-batches of `samples`. REQUIRES: the device is a GPU; CheckGpuSamples passed.
GpuMemoryPlan PlanGpuMemory(Device device, const JobPlan& plan, const Model& model,
                            uint64_t samples);

// Checks the device on which a worker computes: CheckMemory with this machine's memory; on a GPU
// the free memory there. The error names the largest micro-batch that would fit.
Status CheckDeviceMemory(Device device, const JobPlan& plan, const Model& model);

}  // namespace pando
