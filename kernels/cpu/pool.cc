#include <algorithm>

#include "kernels/cpu/cpu_ops.h"

namespace pando::cpu {
namespace {

// Calls f(sample, output pixel, y and x of the window's first input pixel), in order.
template <class F>
void ForEachWindow(const Pool2dSpec& spec, uint32_t sample_count, F&& f) {
  const SampleShape out = spec.output();
  for (size_t s = 0; s < sample_count; ++s) {
    for (size_t y = 0; y < out.height; ++y) {
      for (size_t x = 0; x < out.width; ++x) {
        f(s, (s * out.height + y) * out.width + x, y * spec.stride, x * spec.stride);
      }
    }
  }
}

}  // namespace

void MaxPoolForward(const Pool2dSpec& spec, uint32_t sample_count, const float* x, float* y,
                    int32_t* argmax) {
  const size_t channels = spec.input.channels, width = spec.input.width;
  ForEachWindow(spec, sample_count, [&](size_t s, size_t cell, size_t top, size_t left) {
    const float* image = x + s * spec.input.size();
    float* out = y + cell * channels;
    int32_t* where = argmax + cell * channels;
    for (size_t i = 0; i < size_t{spec.window} * spec.window; ++i) {
      const size_t pixel = (top + i / spec.window) * width + left + i % spec.window;
      const float* in = image + pixel * channels;
      for (size_t c = 0; c < channels; ++c) {
        const bool greater = i == 0 || in[c] > out[c];
        out[c] = greater ? in[c] : out[c];
        where[c] = greater ? static_cast<int32_t>(pixel) : where[c];
      }
    }
  });
}

void MaxPoolBackward(const Pool2dSpec& spec, uint32_t sample_count, const int32_t* argmax,
                     const float* dy, float* dx) {
  const size_t channels = spec.input.channels;
  std::fill_n(dx, sample_count * spec.input.size(), 0.0f);
  ForEachWindow(spec, sample_count, [&](size_t s, size_t cell, size_t, size_t) {
    float* image = dx + s * spec.input.size();
    for (size_t c = 0; c < channels; ++c) {
      const auto pixel = static_cast<size_t>(argmax[cell * channels + c]);
      image[pixel * channels + c] += dy[cell * channels + c];
    }
  });
}

void AveragePoolForward(const Pool2dSpec& spec, uint32_t sample_count, const float* x, float* y) {
  const size_t channels = spec.input.channels, width = spec.input.width;
  const float scale = 1.0f / static_cast<float>(spec.window * spec.window);
  ForEachWindow(spec, sample_count, [&](size_t s, size_t cell, size_t top, size_t left) {
    float* out = y + cell * channels;
    std::fill_n(out, channels, 0.0f);
    for (size_t i = 0; i < size_t{spec.window} * spec.window; ++i) {
      const size_t pixel = (top + i / spec.window) * width + left + i % spec.window;
      const float* in = x + s * spec.input.size() + pixel * channels;
      for (size_t c = 0; c < channels; ++c) out[c] += in[c];
    }
    for (size_t c = 0; c < channels; ++c) out[c] *= scale;
  });
}

void AveragePoolBackward(const Pool2dSpec& spec, uint32_t sample_count, const float* dy,
                         float* dx) {
  const size_t channels = spec.input.channels, width = spec.input.width;
  const float scale = 1.0f / static_cast<float>(spec.window * spec.window);
  std::fill_n(dx, sample_count * spec.input.size(), 0.0f);
  ForEachWindow(spec, sample_count, [&](size_t s, size_t cell, size_t top, size_t left) {
    for (size_t i = 0; i < size_t{spec.window} * spec.window; ++i) {
      const size_t pixel = (top + i / spec.window) * width + left + i % spec.window;
      float* in = dx + s * spec.input.size() + pixel * channels;
      for (size_t c = 0; c < channels; ++c) in[c] += dy[cell * channels + c] * scale;
    }
  });
}

}  // namespace pando::cpu
