// Event is a position in a stream for which other work waits.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "kernels/cuda/runtime.h"

namespace pando::cuda {

class Event {
 public:
  Event() { PANDO_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  ~Event() {
    if (event_ != nullptr) PANDO_CUDA_CHECK(cudaEventDestroy(event_));
  }

  // Marks the position after everything that is on the stream now.
  void Record(cudaStream_t stream) { PANDO_CUDA_CHECK(cudaEventRecord(event_, stream)); }
  // Later work on the stream begins after the position of the last Record.
  void HoldBack(cudaStream_t stream) { PANDO_CUDA_CHECK(cudaStreamWaitEvent(stream, event_, 0)); }
  bool IsPast() {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) return false;
    PANDO_CUDA_CHECK(status);
    return true;
  }
  void Await() { PANDO_CUDA_CHECK(cudaEventSynchronize(event_)); }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace pando::cuda
