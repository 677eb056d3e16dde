#include <algorithm>

#include "kernels/cpu/cpu_ops.h"

namespace pando::cpu {
namespace {

size_t SizeOf(const DeviceBatch& batch) { return batch.sample_count * batch.shape.size(); }

// The batch as it is, [pixel, channel].
void ImportOwnChannels(const DeviceBatch& batch, float* x) {
  if (batch.bytes == nullptr) {
    std::copy_n(batch.values, SizeOf(batch), x);
    return;
  }
  const size_t channels = batch.shape.channels;
  for (size_t c = 0; c < channels; ++c) {
    const float* values = batch.byte_values + 256 * c;
    for (size_t i = c; i < SizeOf(batch); i += channels) x[i] = values[batch.bytes[i]];
  }
}

}  // namespace

void ImportBatch(const DeviceBatch& batch, uint32_t channels, float* x, int32_t* labels) {
  std::copy_n(batch.labels, batch.sample_count, labels);
  if (channels == batch.shape.channels) return ImportOwnChannels(batch, x);
  if (batch.bytes == nullptr) {
    for (size_t i = 0; i < SizeOf(batch); ++i) x = std::fill_n(x, channels, batch.values[i]);
    return;
  }
  for (size_t i = 0; i < SizeOf(batch); ++i)
    x = std::fill_n(x, channels, batch.byte_values[batch.bytes[i]]);
}

void FlattenForward(uint32_t sample_count, const SampleShape& shape, const float* x, float* y) {
  const size_t pixels = size_t{shape.height} * shape.width;
  for (size_t s = 0; s < sample_count; ++s, x += shape.size()) {
    for (size_t c = 0; c < shape.channels; ++c) {
      for (size_t p = 0; p < pixels; ++p) *y++ = x[p * shape.channels + c];
    }
  }
}

void FlattenBackward(uint32_t sample_count, const SampleShape& shape, const float* dy, float* dx) {
  const size_t pixels = size_t{shape.height} * shape.width;
  for (size_t s = 0; s < sample_count; ++s, dx += shape.size()) {
    for (size_t c = 0; c < shape.channels; ++c) {
      for (size_t p = 0; p < pixels; ++p) dx[p * shape.channels + c] = *dy++;
    }
  }
}

}  // namespace pando::cpu
