// Source: NVIDIA's "NVML API Reference Guide". The API is declared here, because the toolkit's
// header may be missing.
#include "kernels/nvml.h"

#include <array>
#include <utility>

#include "kernels/runtime_library.h"

namespace pando {
namespace {

using NvmlDevice = struct nvmlDevice_st*;
struct NvmlMemory {  // bytes
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct NvmlUtilization {  // percent
  unsigned gpu;
  unsigned memory;
};
using NvmlName = std::array<char, 96>;  // NVML_DEVICE_NAME_V2_BUFFER_SIZE

}  // namespace

struct Nvml::Api : RuntimeLibrary {
  int (*init)() = Find("nvmlInit_v2");
  int (*shutdown)() = Find("nvmlShutdown");
  int (*driver_version)(char*, unsigned) = Find("nvmlSystemGetDriverVersion");
  int (*count)(unsigned*) = Find("nvmlDeviceGetCount_v2");
  int (*handle)(unsigned, NvmlDevice*) = Find("nvmlDeviceGetHandleByIndex_v2");
  int (*handle_at)(const char*, NvmlDevice*) = Find("nvmlDeviceGetHandleByPciBusId_v2");
  int (*name)(NvmlDevice, char*, unsigned) = Find("nvmlDeviceGetName");
  int (*memory)(NvmlDevice, NvmlMemory*) = Find("nvmlDeviceGetMemoryInfo");
  int (*utilisation)(NvmlDevice, NvmlUtilization*) = Find("nvmlDeviceGetUtilizationRates");
  int (*capability)(NvmlDevice, int*, int*) = Find("nvmlDeviceGetCudaComputeCapability");

  GpuState Read(NvmlDevice device) const;
};

Result<Nvml> Nvml::Open() {
  PANDO_ASSIGN_OR_RETURN(RuntimeLibrary library, RuntimeLibrary::Load({"libnvidia-ml.so.1"}));
  auto api = std::make_unique<Api>(std::move(library));
  if (!api->status().ok() || api->init() != 0) {
    return NotFound("libnvidia-ml.so.1 is installed but does not work: check nvidia-smi");
  }
  return Nvml(std::move(api));
}

Nvml::Nvml(std::unique_ptr<Api> api) : api_(std::move(api)) {}
Nvml::Nvml(Nvml&&) noexcept = default;
Nvml::~Nvml() {
  if (api_ != nullptr) api_->shutdown();
}

std::string Nvml::driver_version() const {
  NvmlName text{};
  return api_->driver_version(text.data(), text.size()) == 0 ? text.data() : "";
}

std::vector<GpuState> Nvml::ReadGpus() const {
  unsigned count = 0;
  if (api_->count(&count) != 0) return {};
  std::vector<GpuState> gpus;
  for (unsigned i = 0; i < count; ++i) {
    NvmlDevice device = nullptr;
    if (api_->handle(i, &device) != 0) continue;
    gpus.push_back(api_->Read(device));
  }
  return gpus;
}

std::optional<GpuState> Nvml::ReadGpu(const std::string& bus_id) const {
  NvmlDevice device = nullptr;
  if (api_->handle_at(bus_id.c_str(), &device) != 0) return std::nullopt;
  return api_->Read(device);
}

GpuState Nvml::Api::Read(NvmlDevice device) const {
  GpuState gpu;
  NvmlName text{};
  if (name(device, text.data(), text.size()) == 0) gpu.name = text.data();
  NvmlMemory bytes{};
  if (memory(device, &bytes) == 0) {
    gpu.memory_bytes = bytes.total;
    gpu.memory_used_bytes = bytes.used;
  }
  NvmlUtilization percent{};
  if (utilisation(device, &percent) == 0) gpu.utilisation_percent = percent.gpu;
  int major = 0, minor = 0;
  if (capability(device, &major, &minor) == 0)
    gpu.compute_capability = static_cast<uint32_t>(10 * major + minor);
  return gpu;
}

}  // namespace pando
