// BatchBlock: how a batch lies in one block of memory, so that one copy brings it to a GPU. Used by
// the worker, whose readers fill blocks of pinned memory that the GPU fetches while it computes.
//
//   what the pictures' bytes become, by channel | labels | moves of pictures | pictures, or values
//
// each from a multiple of 256 bytes on.
#pragma once

#include <cstddef>

#include "common/batch.h"
#include "kernels/device.h"
#include "kernels/ops.h"

namespace pando {

class BatchBlock {
 public:
  // Of batches like this one, which is not read.
  explicit BatchBlock(const Batch& batch);
  size_t size_bytes() const { return size_bytes_; }
  // REQUIRES: size_bytes() there.
  void Fill(const Batch& batch, std::byte* block) const;
  DeviceBatch At(const std::byte* block) const;

 private:
  DeviceBatch batch_;  // without the arrays
  bool has_bytes_, has_moves_;
  size_t labels_at_, moves_at_, samples_at_;
  size_t size_bytes_;
};

// Fills batch->pinned, which is used again where it is large enough. Any thread.
void PinBatch(Device device, Batch* batch);

}  // namespace pando
