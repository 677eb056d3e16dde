// GpuMonitor asks the driver, at most once a second, how much of a GPU is in use. Its worker's
// heartbeats report it. Threads: one.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "kernels/nvml.h"

namespace pando {

class GpuMonitor {
 public:
  // `bus_id` is OpenedGpu::bus_id. If it is empty, or the driver has no NVML, all values are 0.
  explicit GpuMonitor(std::string bus_id) : bus_id_(std::move(bus_id)) {
    if (bus_id_.empty()) return;
    Result<Nvml> nvml = Nvml::Open();
    if (nvml.ok()) nvml_.emplace(*std::move(nvml));
  }
  const GpuState& Read() {
    const auto now = std::chrono::steady_clock::now();
    if (!nvml_ || now < read_at_ + kReadInterval) return state_;
    read_at_ = now;
    return state_ = nvml_->ReadGpu(bus_id_).value_or(GpuState{});
  }

 private:
  static constexpr std::chrono::seconds kReadInterval{1};

  std::string bus_id_;
  std::optional<Nvml> nvml_;
  GpuState state_;
  std::chrono::steady_clock::time_point read_at_{};
};

}  // namespace pando
