#include "kernels/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/check.h"

namespace pando::cuda {

Staging::Staging(cudaStream_t stream) : stream_(stream) {
  for (Slot& slot : slots_) {
    PANDO_CUDA_CHECK(cudaEventCreateWithFlags(&slot.is_free, cudaEventDisableTiming));
  }
}

Staging::~Staging() {
  for (Slot& slot : slots_) {
    PANDO_CUDA_CHECK(cudaEventSynchronize(slot.is_free));
    PANDO_CUDA_CHECK(cudaEventDestroy(slot.is_free));
    PANDO_CUDA_CHECK(cudaFreeHost(slot.pinned));
    PANDO_CUDA_CHECK(cudaFree(slot.device));
  }
}

Staging::Slot& Staging::NextSlot(size_t size_bytes) {
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % kSlots;
  PANDO_CUDA_CHECK(cudaEventSynchronize(slot.is_free));
  if (slot.pinned_bytes < size_bytes) {
    PANDO_CUDA_CHECK(cudaFreeHost(slot.pinned));
    PANDO_CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&slot.pinned), size_bytes));
    slot.pinned_bytes = size_bytes;
  }
  return slot;
}

void Staging::Upload(std::span<const std::byte> host, void* to) {
  if (host.empty()) return;
  Slot& slot = NextSlot(host.size());
  std::memcpy(slot.pinned, host.data(), host.size());
  PANDO_CUDA_CHECK(cudaMemcpyAsync(to, slot.pinned, host.size(), cudaMemcpyHostToDevice, stream_));
  PANDO_CUDA_CHECK(cudaEventRecord(slot.is_free, stream_));
}

// The memory of the slot on the GPU is written in the stream's order: after what has read it.
const void* Staging::Upload(std::span<const std::byte> host) {
  Slot& slot = slots_[next_];
  if (slot.device_bytes < host.size()) {
    PANDO_CUDA_CHECK(cudaFree(slot.device));
    PANDO_CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&slot.device), host.size()));
    slot.device_bytes = host.size();
  }
  Upload(host, slot.device);
  return slot.device;
}

}  // namespace pando::cuda
