// The device on which a worker computes: the value of --device, and the GPU that is opened for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/result.h"
#include "kernels/opened_gpu.h"
#include "models/model.h"
#include "plan/job.h"

namespace pando {

struct DeviceChoice {
  enum class Kind : uint8_t { kAuto, kCpu, kAnyGpu, kGpu } kind = Kind::kAuto;
  uint32_t gpu = 0;  // for kGpu
};
// Parses "auto", "cpu", "cuda" or "cuda:N". The error names `flag`.
Result<DeviceChoice> ParseDevice(const std::string& flag, const std::string& text);

// Returns the number of this machine's GPUs that Pando can use; 0 if the CPU is meant. Then it does
// not call `count`, which starts CUDA and loads its libraries into this process.
uint32_t CountGpus(const DeviceChoice& choice, uint32_t (*count)() = GpuCount);
// Returns how many GPUs a machine's workers may use; 0: they compute on the CPU.
uint32_t GpusFor(const DeviceChoice& choice, uint32_t gpu_count);
// Returns whether the choice means a GPU, on a machine with `gpu_count` usable ones.
bool IsGpuMeant(const DeviceChoice& choice, uint32_t gpu_count);
// Returns --device for a machine's index-th worker. Workers that may use any GPU take turns.
std::string DeviceOfWorker(const DeviceChoice& choice, uint32_t gpu_count, uint32_t index);

struct OpenedDevice {
  std::optional<OpenedGpu> gpu;  // none: the CPU
  std::string kind;              // P1: backend, instruction set, library versions, precision
  Device device() const { return gpu ? gpu->device() : Device{}; }
  // Returns the number of computing threads; a GPU has one.
  uint32_t threads(const Job& job) const { return gpu ? 1 : job.threads; }
};
// Opens the device for the calling thread. kNotFound: there is no such GPU. kInvalidArgument: a CPU
// does not support the job's precision. Both say what to do. `on_engine` is CudaOptions::on_engine.
Result<OpenedDevice> OpenDevice(const DeviceChoice& choice, const Job& job,
                                const OnEngineNote& on_engine = nullptr);
Result<OpenedDevice> OpenDevice(const std::string& device, const Job& job,  // a value of --device
                                const OnEngineNote& on_engine = nullptr);

// Checks, before any process starts, that this machine can compute the job: the device, the
// precision, and on the CPU its memory.
Status CheckMachine(const Job& job, const Model& model, const StepPlan& steps);

}  // namespace pando
