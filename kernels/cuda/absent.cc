// The functions of kernels/device.h in a build without CUDA: no GPU can be opened.
#include "common/check.h"
#include "kernels/copy_queue.h"
#include "kernels/launch_graph.h"
#include "kernels/opened_gpu.h"

namespace pando {

class CudaDevice {};

bool HasCuda() { return false; }
uint32_t GpuCount() { return 0; }

Result<OpenedGpu> OpenCuda(const CudaOptions&) {
  return NotFound(
      "this pando was built without CUDA: configure it again where CUDA's toolkit is (CUDA_HOME), "
      "or use --device cpu");
}

OpenedGpu::OpenedGpu(std::unique_ptr<CudaDevice> gpu) : gpu_(std::move(gpu)) {}
OpenedGpu::~OpenedGpu() = default;
OpenedGpu::OpenedGpu(OpenedGpu&&) noexcept = default;
Device OpenedGpu::device() const { return {}; }
std::string OpenedGpu::description() const { return ""; }
std::string OpenedGpu::bus_id() const { return ""; }

struct LaunchGraph::Recording {};
LaunchGraph::LaunchGraph(Device, const std::function<void()>&) { PANDO_CHECK(false); }
LaunchGraph::~LaunchGraph() = default;
LaunchGraph::LaunchGraph(LaunchGraph&&) noexcept = default;
void LaunchGraph::Launch() const {}

struct CopyQueue::Impl {};
CopyQueue::CopyQueue(Device) { PANDO_CHECK(false); }
CopyQueue::~CopyQueue() = default;
CopyQueue::CopyQueue(CopyQueue&&) noexcept = default;
void CopyQueue::ToDevice(std::span<const std::byte>, void*) {}
void CopyQueue::ToHost(const void*, std::span<std::byte>) {}
void CopyQueue::AwaitLaunched() {}
void CopyQueue::HoldLaunches() {}
CopyQueue::Ticket CopyQueue::Mark() { return 0; }
bool CopyQueue::IsDone(Ticket) { return true; }
void CopyQueue::Await(Ticket) {}

}  // namespace pando
