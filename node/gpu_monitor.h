// GpuMonitor asks the driver, at most once a second, how much of a GPU is in use: for the
// heartbeats of its worker.  Threads: one.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "kernels/nvml.h"

namespace pando {

class GpuMonitor {
 public:
  // `bus_id`: OpenedGpu::bus_id; empty, or without a driver that can be asked: all is 0.
  explicit GpuMonitor(std::string bus_id);
  const GpuState& Read();

 private:
  std::string bus_id_;
  std::optional<Nvml> nvml_;
  GpuState state_;
  std::chrono::steady_clock::time_point read_at_{};
};

}  // namespace pando
