#include <algorithm>
#include <array>

#include "kernels/cpu/cpu_ops.h"

namespace pando::cpu {
namespace {

using ByteTable = std::array<float, 256>;

// In PyTorch's order of operations: ToTensor's division, then Normalize.
ByteTable NormalisedBytes(float mean, float stddev) {
  ByteTable table;
  for (size_t i = 0; i < table.size(); ++i) {
    table[i] = (static_cast<float>(i) / 255.0f - mean) / stddev;
  }
  return table;
}

ByteTable TableOf(const Batch& batch, size_t channel) {
  if (batch.normalisation == nullptr) return NormalisedBytes(0.0f, 1.0f);
  return NormalisedBytes(batch.normalisation->mean[channel], batch.normalisation->stddev[channel]);
}

// The batch as it is, [pixel, channel].
void ImportOwnChannels(const Batch& batch, float* x) {
  if (batch.bytes.empty()) {
    std::copy(batch.values.begin(), batch.values.end(), x);
    return;
  }
  const size_t channels = batch.shape.channels;
  for (size_t c = 0; c < channels; ++c) {
    const ByteTable table = TableOf(batch, c);
    for (size_t i = c; i < batch.bytes.size(); i += channels) x[i] = table[batch.bytes[i]];
  }
}

}  // namespace

void ImportBatch(const Batch& batch, uint32_t channels, float* x, int32_t* labels) {
  std::copy(batch.labels.begin(), batch.labels.end(), labels);
  if (channels == batch.shape.channels) {
    ImportOwnChannels(batch, x);
    return;
  }
  for (float value : batch.values) x = std::fill_n(x, channels, value);
  if (batch.bytes.empty()) return;
  const ByteTable table = TableOf(batch, 0);
  for (uint8_t byte : batch.bytes) x = std::fill_n(x, channels, table[byte]);
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
