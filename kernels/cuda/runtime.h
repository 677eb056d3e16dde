// CUDA's runtime: checks of its return values, streams, events and Staging.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <span>
#include <utility>

namespace pando::cuda {

[[noreturn]] void CudaFailed(const char* call, const char* what, const char* file, int line);

}  // namespace pando::cuda

// A GPU that fails is a machine that fails: the process stops, another one starts and joins, and
// the protocol recovers. A macro, because the message has the call's text and place.
#define PANDO_CUDA_CHECK(call) PANDO_STATUS_CHECK(call, #call, cudaSuccess, cudaGetErrorString)
// For any of NVIDIA's libraries. `text` is the call's text, and `describe` the library's function
// that names a status.
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

// A position in a stream for which other work waits.
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

// Staging: pinned host memory through which arrays reach the GPU while the host continues. Piece by
// piece, it copies into a free slot, then transfers on the stream. CudaDevice uses it. Threads: one
// at a time. Owns: kSlots slots of at most kPieceBytes; kArrays arrays on the GPU, each as large as
// its largest use.
class Staging {
 public:
  explicit Staging(cudaStream_t stream);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Copies to the GPU's memory, in the stream's order. Waits if all slots are in use.
  void Upload(std::span<const std::byte> host, void* to);
  // Copies to an array of this object on the GPU. It is valid for launches before the next kArrays
  // calls, and aligned to 256 bytes.
  const void* Upload(std::span<const std::byte> host);

 private:
  static constexpr size_t kSlots = 8;
  static constexpr size_t kPieceBytes = size_t{16} << 20;
  static constexpr size_t kArrays = 5;  // the arrays that a batch can have (UploadBatch)
  struct Slot {
    std::byte* pinned = nullptr;
    size_t size_bytes = 0;
    Event is_free;  // recorded after the last use
  };
  struct Array {
    std::byte* data = nullptr;
    size_t size_bytes = 0;
  };
  Slot& NextSlot(size_t size_bytes);

  const cudaStream_t stream_;
  std::array<Slot, kSlots> slots_;
  std::array<Array, kArrays> arrays_;
  size_t next_slot_ = 0;
  size_t next_array_ = 0;
};

}  // namespace pando::cuda
