#include "node/gpu_monitor.h"

#include <utility>

namespace pando {
namespace {

constexpr std::chrono::seconds kReadInterval{1};

}  // namespace

GpuMonitor::GpuMonitor(std::string bus_id) : bus_id_(std::move(bus_id)) {
  if (bus_id_.empty()) return;
  Result<Nvml> nvml = Nvml::Open();
  if (nvml.ok()) nvml_.emplace(*std::move(nvml));
}

const GpuState& GpuMonitor::Read() {
  const auto now = std::chrono::steady_clock::now();
  if (!nvml_ || now < read_at_ + kReadInterval) return state_;
  read_at_ = now;
  state_ = nvml_->ReadGpu(bus_id_).value_or(GpuState{});
  return state_;
}

}  // namespace pando
