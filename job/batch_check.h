// Checks that a job's micro-batches can be computed. The caller has the job, its data and its
// model, and has not started a process yet.
#pragma once

#include <cstdint>

#include "common/status.h"
#include "kernels/device.h"
#include "models/model.h"
#include "plan/job.h"
#include "plan/job_plan.h"
#include "plan/step_plan.h"

namespace pando {

// Checks the job's batch norms. kInvalidArgument: one has only one value per channel to normalise,
// which would always become 0. This happens over one pixel, in a step with micro-batches of one
// sample. The error names layer, step and keys.
Status CheckMicroBatches(const Job& job, const Model& model, const StepPlan& steps);

// kInvalidArgument: the activations of one computing thread take more than `memory_bytes`.
Status CheckMemory(const Job& job, const Model& model, const StepPlan& steps,
                   uint64_t memory_bytes);
uint64_t MachineMemoryBytes();  // of this machine

// The memory that a worker takes on a GPU. Its context and NVIDIA's libraries take more when it is
// opened.
struct GpuMemoryPlan {
  // Copies of the current version and of the evaluated one, and encoded ones if the GPU decodes.
  uint64_t parameters = 0;
  // The flat vectors for the tree's sums (docs/protocol.md, section 12), and encoded gradients.
  uint64_t gradients = 0;
  uint64_t network = 0;  // activations, their gradients, other kept values, scratch
  uint64_t batches = 0;  // samples that are being copied into the network
  uint64_t total() const { return parameters + gradients + network + batches; }
};
// Checks the size. kInvalidArgument: micro-batches of `samples` are larger than any plan supports.
Status CheckGpuSamples(Device device, const JobPlan& plan, const Model& model, uint64_t samples);
// Plans for micro-batches of `samples`. REQUIRES: the device is a GPU; CheckGpuSamples passed.
GpuMemoryPlan PlanGpuMemory(Device device, const JobPlan& plan, const Model& model,
                            uint64_t samples);

// Checks a worker's device: the CPU by CheckMemory with this machine's memory, a GPU by the free
// memory there. The error names the largest micro-batch that would fit.
Status CheckDeviceMemory(Device device, const JobPlan& plan, const Model& model);

}  // namespace pando
