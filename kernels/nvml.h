// Nvml: the facts that NVIDIA's driver reports about this machine's GPUs, for `pando doctor` and
// the metrics. It is loaded at run time and does not use CUDA. Without the driver it is
// unavailable. Threads: any. Owns: the driver's library, initialised.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"

namespace pando {

struct GpuState {
  std::string name;  // "NVIDIA H200"
  uint64_t memory_bytes = 0;
  uint64_t memory_used_bytes = 0;    // by all processes
  uint32_t utilisation_percent = 0;  // over about one second, with any running kernel
  uint32_t compute_capability = 0;   // 90: 9.0
};

class Nvml {
 public:
  // kNotFound: this machine has no driver.
  static Result<Nvml> Open();
  ~Nvml();
  Nvml(Nvml&&) noexcept;

  std::string driver_version() const;  // "580.159.03"; empty if it is not reported
  // Returns all GPUs in the driver's order, as nvidia-smi does. Values that a GPU lacks are 0.
  std::vector<GpuState> ReadGpus() const;
  // Returns the GPU at this place of the bus (OpenedGpu::bus_id), because CUDA's order differs.
  // None: the driver does not know the GPU.
  std::optional<GpuState> ReadGpu(const std::string& bus_id) const;

 private:
  struct Api;
  explicit Nvml(std::unique_ptr<Api> api);
  std::unique_ptr<Api> api_;
};

}  // namespace pando
