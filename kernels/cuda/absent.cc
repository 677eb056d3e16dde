// A build without CUDA: there is no GPU to open.
#include "kernels/device.h"

namespace pando {

class CudaDevice {};

bool HasCuda() { return false; }

Result<OpenedGpu> OpenCuda(const CudaOptions&) {
  return NotFound(
      "this pando was built without CUDA: configure it again where CUDA's toolkit is (CUDA_HOME), "
      "or use --device cpu");
}

OpenedGpu::OpenedGpu(std::unique_ptr<CudaDevice> gpu) : gpu_(std::move(gpu)) {}
OpenedGpu::~OpenedGpu() = default;
OpenedGpu::OpenedGpu(OpenedGpu&&) noexcept = default;
Device OpenedGpu::device() const { return {}; }

}  // namespace pando
