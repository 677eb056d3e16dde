// Launches recorded as a CUDA graph. Programming guide, 3.2.8.7.3, "Creating a graph using stream
// capture".
#include <utility>

#include "kernels/cuda/cuda_device.h"

namespace pando {

struct LaunchGraph::Recording {
  cudaStream_t stream = nullptr;
  cudaGraphExec_t graph = nullptr;

  ~Recording() { PANDO_CUDA_CHECK(cudaGraphExecDestroy(graph)); }
};

LaunchGraph::LaunchGraph(Device device, const std::function<void()>& launches)
    : recording_(std::make_unique<Recording>()) {
  recording_->stream = device.cuda->stream();
  // Other threads continue to free and allocate.
  PANDO_CUDA_CHECK(cudaStreamBeginCapture(recording_->stream, cudaStreamCaptureModeThreadLocal));
  launches();
  cudaGraph_t graph = nullptr;
  PANDO_CUDA_CHECK(cudaStreamEndCapture(recording_->stream, &graph));
  PANDO_CUDA_CHECK(cudaGraphInstantiate(&recording_->graph, graph, 0));
  PANDO_CUDA_CHECK(cudaGraphDestroy(graph));
}

LaunchGraph::~LaunchGraph() = default;
LaunchGraph::LaunchGraph(LaunchGraph&&) noexcept = default;

void LaunchGraph::Launch() const {
  PANDO_CUDA_CHECK(cudaGraphLaunch(recording_->graph, recording_->stream));
}

}  // namespace pando
