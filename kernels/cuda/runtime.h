// CUDA's runtime: checks of its return values, streams and events.
#pragma once

#include <cuda_runtime.h>

#include <utility>

namespace pando::cuda {

[[noreturn]] void CudaFailed(const char* call, const char* what, const char* file, int line);

}  // namespace pando::cuda

// A GPU that fails is a machine that fails: the process stops, another one starts and joins, and
// the protocol recovers. A macro because the call's text and place belong in the message.
#define PANDO_CUDA_CHECK(call) PANDO_STATUS_CHECK(call, #call, cudaSuccess, cudaGetErrorString)
// For any of NVIDIA's libraries. `text` is the call's, `describe` the library's function that names
// a status.
#define PANDO_STATUS_CHECK(call, text, success, describe)                            \
  do {                                                                               \
    const auto pando_status = (call);                                                \
    if (pando_status != (success))                                                   \
      ::pando::cuda::CudaFailed(text, (describe)(pando_status), __FILE__, __LINE__); \
  } while (false)

namespace pando::cuda {

// A queue of work on the current GPU, which runs in order.
class Stream {
 public:
  Stream() { PANDO_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  ~Stream() {
    if (stream_ != nullptr) PANDO_CUDA_CHECK(cudaStreamDestroy(stream_));
  }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// A position in a stream for which others wait.
class Event {
 public:
  Event() { PANDO_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  ~Event() {
    if (event_ != nullptr) PANDO_CUDA_CHECK(cudaEventDestroy(event_));
  }

  // After everything that is on the stream now.
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
