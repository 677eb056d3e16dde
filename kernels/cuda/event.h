// Event: a place in a stream that others wait for.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "kernels/cuda/check.h"

namespace pando::cuda {

class Event {
 public:
  Event() { PANDO_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  ~Event() {
    if (event_ != nullptr) PANDO_CUDA_CHECK(cudaEventDestroy(event_));
  }

  // Behind what is on the stream now.
  void Record(cudaStream_t stream) { PANDO_CUDA_CHECK(cudaEventRecord(event_, stream)); }
  // What is put on the stream from now on begins after the last Record's place.
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
