#include "kernels/batch_block.h"

#include <cstring>
#include <memory>
#include <vector>

namespace pando {
namespace {

constexpr size_t kAlignmentBytes = 256;  // as cudaMalloc's

size_t RoundUp(size_t size_bytes) {
  return (size_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

template <class T>
size_t CountBytes(const std::vector<T>& values) {
  return values.size() * sizeof(T);
}

template <class T>
void Put(const std::vector<T>& values, std::byte* to) {
  if (!values.empty()) std::memcpy(to, values.data(), CountBytes(values));
}

}  // namespace

BatchBlock::BatchBlock(const Batch& batch)
    : batch_{.shape = batch.shape, .sample_count = batch.sample_count()},
      has_bytes_(!batch.bytes.empty()),
      has_moves_(!batch.moves.empty()),
      labels_at_(has_bytes_ ? RoundUp(256 * sizeof(float) * batch.shape.channels) : 0),
      moves_at_(labels_at_ + RoundUp(CountBytes(batch.labels))),
      samples_at_(moves_at_ + RoundUp(CountBytes(batch.moves))),
      size_bytes_(samples_at_ + CountBytes(batch.bytes) + CountBytes(batch.values)) {}

void BatchBlock::Fill(const Batch& batch, std::byte* block) const {
  if (has_bytes_) Put(MakeByteValues(batch), block);
  Put(batch.labels, block + labels_at_);
  Put(batch.moves, block + moves_at_);
  Put(batch.bytes, block + samples_at_);
  Put(batch.values, block + samples_at_);
}

DeviceBatch BatchBlock::At(const std::byte* block) const {
  DeviceBatch at = batch_;
  at.labels = reinterpret_cast<const int32_t*>(block + labels_at_);
  if (has_bytes_) {
    at.byte_values = reinterpret_cast<const float*>(block);
    if (has_moves_) at.moves = reinterpret_cast<const PictureMove*>(block + moves_at_);
    at.bytes = reinterpret_cast<const uint8_t*>(block + samples_at_);
  } else {
    at.values = reinterpret_cast<const float*>(block + samples_at_);
  }
  return at;
}

void PinBatch(Device device, Batch* batch) {
  const BatchBlock block(*batch);
  const size_t floats = (block.size_bytes() + sizeof(float) - 1) / sizeof(float);
  if (batch->pinned == nullptr || batch->pinned->size() < floats)
    batch->pinned = std::make_shared<FloatBuffer>(PinnedFloats(device, floats));
  block.Fill(*batch, reinterpret_cast<std::byte*>(batch->pinned->data()));
}

}  // namespace pando
