// Staging: pinned host memory through which arrays reach the GPU without the host's waiting for it:
// a copy into a free slot, then a transfer on the stream. Used by CudaDevice.
// Threads: one at a time. Owns: kSlots slots, each as large as the largest array it has seen.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <span>

namespace pando::cuda {

class Staging {
 public:
  explicit Staging(cudaStream_t stream);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // To the GPU's memory, in the stream's order. Waits where all slots are on their way.
  void Upload(std::span<const std::byte> host, void* to);
  // To the slot's own memory on the GPU, which is valid for what is launched before the next kSlots
  // uploads. 256-byte aligned.
  const void* Upload(std::span<const std::byte> host);

 private:
  static constexpr size_t kSlots = 4;  // two micro-batches' inputs and labels
  struct Slot {
    std::byte* pinned = nullptr;
    std::byte* device = nullptr;
    size_t pinned_bytes = 0;
    size_t device_bytes = 0;
    cudaEvent_t is_free = nullptr;  // recorded behind the last use
  };
  Slot& NextSlot(size_t size_bytes);

  const cudaStream_t stream_;
  std::array<Slot, kSlots> slots_;
  size_t next_ = 0;
};

}  // namespace pando::cuda
