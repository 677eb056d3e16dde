// Nvml: what NVIDIA's driver tells of the GPUs of this machine, loaded at run time: for `pando
// doctor` and the metrics. Knows nothing of CUDA; a machine without the driver has none of it.
// Threads: any. Owns: the driver's library, initialised.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"

namespace pando {

struct GpuState {
  std::string name;  // "NVIDIA H200"
  uint64_t memory_bytes = 0;
  uint64_t memory_used_bytes = 0;    // by all processes
  uint32_t utilisation_percent = 0;  // of the last second or so, with any kernel at work
  uint32_t compute_capability = 0;   // 90: 9.0
};

class Nvml {
 public:
  // kNotFound: there is no driver here.
  static Result<Nvml> Open();
  ~Nvml();
  Nvml(Nvml&&) noexcept;

  std::string driver_version() const;  // "580.159.03"; empty: it does not say
  // In the driver's order, which is nvidia-smi's. Figures that a GPU does not tell are 0.
  std::vector<GpuState> ReadGpus() const;
  // Of the GPU at this place of the bus (OpenedGpu::bus_id): CUDA counts in an order of its own.
  // None: the driver does not know it.
  std::optional<GpuState> ReadGpu(const std::string& bus_id) const;

 private:
  struct Api;
  explicit Nvml(std::unique_ptr<Api> api);
  std::unique_ptr<Api> api_;
};

}  // namespace pando
