#include "kernels/cuda/staging.h"

#include <algorithm>
#include <cstring>

namespace pando::cuda {

Staging::Staging(cudaStream_t stream) : stream_(stream) {}

Staging::~Staging() {
  for (Slot& slot : slots_) {
    slot.is_free.Await();
    if (slot.pinned != nullptr) PANDO_CUDA_CHECK(cudaFreeHost(slot.pinned));
  }
  for (Array& array : arrays_) PANDO_CUDA_CHECK(cudaFree(array.data));
}

Staging::Slot& Staging::NextSlot(size_t size_bytes) {
  Slot& slot = slots_[next_slot_];
  next_slot_ = (next_slot_ + 1) % kSlots;
  slot.is_free.Await();
  if (slot.size_bytes < size_bytes) {
    if (slot.pinned != nullptr) PANDO_CUDA_CHECK(cudaFreeHost(slot.pinned));
    PANDO_CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&slot.pinned), size_bytes));
    slot.size_bytes = size_bytes;
  }
  return slot;
}

void Staging::Upload(std::span<const std::byte> host, void* to) {
  for (auto* out = static_cast<std::byte*>(to); !host.empty();) {
    const std::span<const std::byte> piece = host.first(std::min(host.size(), kPieceBytes));
    Slot& slot = NextSlot(piece.size());
    std::memcpy(slot.pinned, piece.data(), piece.size());
    PANDO_CUDA_CHECK(
        cudaMemcpyAsync(out, slot.pinned, piece.size(), cudaMemcpyHostToDevice, stream_));
    slot.is_free.Record(stream_);
    host = host.subspan(piece.size());
    out += piece.size();
  }
}

// The array is written in the stream's order: after its earlier readers.
const void* Staging::Upload(std::span<const std::byte> host) {
  Array& array = arrays_[next_array_];
  next_array_ = (next_array_ + 1) % kArrays;
  if (array.size_bytes < host.size()) {
    PANDO_CUDA_CHECK(cudaFree(array.data));
    PANDO_CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&array.data), host.size()));
    array.size_bytes = host.size();
  }
  Upload(host, array.data);
  return array.data;
}

}  // namespace pando::cuda
