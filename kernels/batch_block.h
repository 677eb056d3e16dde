// BatchBlock lays a batch out in one block of memory, so that one copy brings it to a GPU. The
// worker's readers fill blocks of pinned memory that the GPU fetches while it computes.
//
//   values of the pictures' bytes, by channel | labels | moves of pictures | pictures, or values
//
// Each part starts at a multiple of 256 bytes.
#pragma once

#include "common/batch.h"
#include "kernels/ops.h"

namespace pando {

class BatchBlock {
 public:
  // For batches like this one, whose content is not read.
  explicit BatchBlock(const Batch& batch);
  size_t size_bytes() const { return size_bytes_; }
  // REQUIRES: `block` has size_bytes().
  void Fill(const Batch& batch, std::byte* block) const;
  DeviceBatch At(const std::byte* block) const;

 private:
  DeviceBatch batch_;  // without the arrays
  bool has_bytes_, has_moves_;
  size_t labels_at_, moves_at_, samples_at_;
  size_t size_bytes_;
};

// Fills batch->pinned, and reuses it if it is large enough. Any thread.
void PinBatch(Device device, Batch* batch);

}  // namespace pando
