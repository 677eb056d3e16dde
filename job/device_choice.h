// Where a worker computes: what --device says, and the GPU that is opened for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/status.h"
#include "kernels/device.h"
#include "models/network.h"
#include "plan/job.h"

namespace pando {

struct DeviceChoice {
  enum class Kind : uint8_t { kAuto, kCpu, kAnyGpu, kGpu } kind = Kind::kAuto;
  uint32_t gpu = 0;  // of kGpu
};
// "auto", "cpu", "cuda" or "cuda:N"; `flag` names it in the error.
Result<DeviceChoice> ParseDevice(const std::string& flag, const std::string& text);

// How many GPUs this machine has that Pando can use; 0 where the CPU is meant: `count`, which
// starts CUDA and loads its libraries into this process, is not called then.
uint32_t CountGpus(const DeviceChoice& choice, uint32_t (*count)() = GpuCount);
// The GPUs of a machine that its workers may use; 0: they compute on the CPU.
uint32_t GpusFor(const DeviceChoice& choice, uint32_t gpu_count);
// Whether the choice means a GPU, on a machine with `gpu_count` usable ones.
bool IsGpuMeant(const DeviceChoice& choice, uint32_t gpu_count);
// What --device says to the index-th worker of a machine: those that may choose take turns.
std::string DeviceOfWorker(const DeviceChoice& choice, uint32_t gpu_count, uint32_t index);

struct OpenedDevice {
  std::optional<OpenedGpu> gpu;  // none: the CPU
  std::string kind;              // P1: backend, instruction set, library versions, precision
  Device device() const { return gpu ? gpu->device() : Device{}; }
  // Computing threads: a GPU has one.
  uint32_t threads(const Job& job) const { return gpu ? 1 : job.threads; }
};
// For the calling thread. kNotFound: there is no such GPU. kInvalidArgument: the job's precision is
// not for a CPU. Both say what to do.
// `on_engine`: CudaOptions::on_engine.
Result<OpenedDevice> OpenDevice(const DeviceChoice& choice, const Job& job,
                                const OnEngineNote& on_engine = nullptr);
Result<OpenedDevice> OpenDevice(const std::string& device, const Job& job,  // as --device says it
                                const OnEngineNote& on_engine = nullptr);

// Checks before the start that this machine can compute the job: the device, the precision, and on
// the CPU its memory.
Status CheckMachine(const Job& job, const Model& model, const StepPlan& steps);

}  // namespace pando
