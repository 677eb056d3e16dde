#include <algorithm>
#include <vector>

#include "kernels/cpu/cpu_ops.h"

namespace pando::cpu {
namespace {

size_t ValueCount(const DeviceBatch& batch) { return batch.sample_count * batch.shape.size(); }

// The bytes of one picture, moved: [y, x, channel].
void MovePicture(const SampleShape& shape, PictureMove move, const uint8_t* from, uint8_t* to) {
  for (uint32_t y = 0; y < shape.height; ++y) {
    for (uint32_t x = 0; x < shape.width; ++x, to += shape.channels) {
      const int64_t pixel = SourcePixel(shape, move, y, x);
      if (pixel < 0) {
        std::fill_n(to, shape.channels, uint8_t{0});
      } else {
        std::copy_n(from + static_cast<size_t>(pixel) * shape.channels, shape.channels, to);
      }
    }
  }
}

// The batch without repeated channels, [pixel, channel].
void ImportOwnChannels(const DeviceBatch& batch, float* x) {
  if (batch.bytes == nullptr) {
    std::copy_n(batch.values, ValueCount(batch), x);
    return;
  }
  const size_t channels = batch.shape.channels;
  for (size_t c = 0; c < channels; ++c) {
    const float* values = batch.byte_values + 256 * c;
    for (size_t i = c; i < ValueCount(batch); i += channels) x[i] = values[batch.bytes[i]];
  }
}

// Picture by picture, so that the moved bytes are in the cache.
void ImportMoved(const DeviceBatch& batch, uint32_t channels, float* x, int32_t* labels) {
  const size_t size = batch.shape.size(), out_size = size / batch.shape.channels * channels;
  std::vector<uint8_t> moved(size);
  for (uint32_t s = 0; s < batch.sample_count; ++s) {
    MovePicture(batch.shape, batch.moves[s], batch.bytes + s * size, moved.data());
    const DeviceBatch one{.shape = batch.shape,
                          .sample_count = 1,
                          .labels = batch.labels + s,
                          .byte_values = batch.byte_values,
                          .bytes = moved.data()};
    ImportBatch(one, channels, x + s * out_size, labels + s);
  }
}

}  // namespace

void ImportBatch(const DeviceBatch& batch, uint32_t channels, float* x, int32_t* labels) {
  if (batch.moves != nullptr) return ImportMoved(batch, channels, x, labels);
  std::copy_n(batch.labels, batch.sample_count, labels);
  if (channels == batch.shape.channels) return ImportOwnChannels(batch, x);
  if (batch.bytes == nullptr) {
    for (size_t i = 0; i < ValueCount(batch); ++i) x = std::fill_n(x, channels, batch.values[i]);
    return;
  }
  for (size_t i = 0; i < ValueCount(batch); ++i)
    x = std::fill_n(x, channels, batch.byte_values[batch.bytes[i]]);
}

void ExportFloats(size_t count, const float* x, float* host) { Copy(count, x, host); }

void TransposeSamples(uint32_t sample_count, uint32_t rows, uint32_t columns, const float* x,
                      float* y) {
  for (size_t s = 0; s < sample_count; ++s, x += size_t{rows} * columns) {
    for (size_t c = 0; c < columns; ++c) {
      for (size_t r = 0; r < rows; ++r) *y++ = x[r * columns + c];
    }
  }
}

}  // namespace pando::cpu
