// Staging is pinned host memory through which arrays reach the GPU while the host continues. Piece
// by piece, it copies into a free slot, then transfers on the stream. CudaDevice uses it. Threads:
// one at a time. Owns: kSlots slots of at most kPieceBytes; kArrays arrays on the GPU, each as
// large as its largest use.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <span>

#include "kernels/cuda/event.h"

namespace pando::cuda {

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
