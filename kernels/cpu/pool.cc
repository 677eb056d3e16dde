#include <algorithm>

#include "kernels/cpu/cpu_ops.h"

namespace pando::cpu {
namespace {

// The pixels of one window that are inside the input: [top, bottom) x [left, right).
struct Window {
  size_t top, bottom, left, right;
  size_t size() const { return (bottom - top) * (right - left); }
};

Window WindowAt(const Pool2dSpec& spec, size_t y, size_t x) {
  auto clip = [&](size_t at, size_t size) {  // at: in the padded input
    return std::min(std::max(at, size_t{spec.padding}) - spec.padding, size);
  };
  const size_t top = y * spec.stride, left = x * spec.stride;
  return {clip(top, spec.input.height), clip(top + spec.window, spec.input.height),
          clip(left, spec.input.width), clip(left + spec.window, spec.input.width)};
}

Window WindowAt(const AdaptivePool2dSpec& spec, size_t y, size_t x) {
  auto first = [](size_t i, size_t size, size_t count) { return i * size / count; };
  auto last = [](size_t i, size_t size, size_t count) {
    return ((i + 1) * size + count - 1) / count;
  };
  return {first(y, spec.input.height, spec.out_height), last(y, spec.input.height, spec.out_height),
          first(x, spec.input.width, spec.out_width), last(x, spec.input.width, spec.out_width)};
}

// Calls f(sample, output pixel, window), in order.
template <class Spec, class F>
void ForEachWindow(const Spec& spec, uint32_t sample_count, F&& f) {
  const SampleShape out = spec.output();
  for (size_t s = 0; s < sample_count; ++s) {
    for (size_t y = 0; y < out.height; ++y) {
      for (size_t x = 0; x < out.width; ++x) {
        f(s, (s * out.height + y) * out.width + x, WindowAt(spec, y, x));
      }
    }
  }
}

// Calls f(pixel) for each of the window's pixels, in order.
template <class F>
void ForEachPixel(const Window& window, size_t width, F&& f) {
  for (size_t y = window.top; y < window.bottom; ++y) {
    for (size_t x = window.left; x < window.right; ++x) f(y * width + x);
  }
}

size_t Divisor(const Pool2dSpec& spec, const Window&) { return size_t{spec.window} * spec.window; }
size_t Divisor(const AdaptivePool2dSpec&, const Window& window) { return window.size(); }

template <class Spec>
void AverageForward(const Spec& spec, uint32_t sample_count, const float* x, float* y) {
  const size_t channels = spec.input.channels;
  ForEachWindow(spec, sample_count, [&](size_t s, size_t cell, const Window& window) {
    const float scale = 1.0f / static_cast<float>(Divisor(spec, window));
    float* out = y + cell * channels;
    std::fill_n(out, channels, 0.0f);
    ForEachPixel(window, spec.input.width, [&](size_t pixel) {
      const float* in = x + s * spec.input.size() + pixel * channels;
      for (size_t c = 0; c < channels; ++c) out[c] += in[c];
    });
    for (size_t c = 0; c < channels; ++c) out[c] *= scale;
  });
}

template <class Spec>
void AverageBackward(const Spec& spec, uint32_t sample_count, const float* dy, float* dx) {
  const size_t channels = spec.input.channels;
  std::fill_n(dx, sample_count * spec.input.size(), 0.0f);
  ForEachWindow(spec, sample_count, [&](size_t s, size_t cell, const Window& window) {
    const float scale = 1.0f / static_cast<float>(Divisor(spec, window));
    ForEachPixel(window, spec.input.width, [&](size_t pixel) {
      float* in = dx + s * spec.input.size() + pixel * channels;
      for (size_t c = 0; c < channels; ++c) in[c] += dy[cell * channels + c] * scale;
    });
  });
}

}  // namespace

void MaxPoolForward(const Pool2dSpec& spec, uint32_t sample_count, const float* x, float* y,
                    int32_t* argmax) {
  const size_t channels = spec.input.channels;
  ForEachWindow(spec, sample_count, [&](size_t s, size_t cell, const Window& window) {
    const float* image = x + s * spec.input.size();
    float* out = y + cell * channels;
    int32_t* where = argmax + cell * channels;
    bool is_first = true;
    ForEachPixel(window, spec.input.width, [&](size_t pixel) {
      const float* in = image + pixel * channels;
      for (size_t c = 0; c < channels; ++c) {
        const bool greater = is_first || in[c] > out[c];
        out[c] = greater ? in[c] : out[c];
        where[c] = greater ? static_cast<int32_t>(pixel) : where[c];
      }
      is_first = false;
    });
  });
}

void MaxPoolBackward(const Pool2dSpec& spec, uint32_t sample_count, const int32_t* argmax,
                     const float* dy, float* dx) {
  const size_t channels = spec.input.channels;
  std::fill_n(dx, sample_count * spec.input.size(), 0.0f);
  ForEachWindow(spec, sample_count, [&](size_t s, size_t cell, const Window&) {
    float* image = dx + s * spec.input.size();
    for (size_t c = 0; c < channels; ++c) {
      const auto pixel = static_cast<size_t>(argmax[cell * channels + c]);
      image[pixel * channels + c] += dy[cell * channels + c];
    }
  });
}

void AveragePoolForward(const Pool2dSpec& spec, uint32_t sample_count, const float* x, float* y) {
  AverageForward(spec, sample_count, x, y);
}

void AveragePoolBackward(const Pool2dSpec& spec, uint32_t sample_count, const float* dy,
                         float* dx) {
  AverageBackward(spec, sample_count, dy, dx);
}

void AdaptiveAveragePoolForward(const AdaptivePool2dSpec& spec, uint32_t sample_count,
                                const float* x, float* y) {
  AverageForward(spec, sample_count, x, y);
}

void AdaptiveAveragePoolBackward(const AdaptivePool2dSpec& spec, uint32_t sample_count,
                                 const float* dy, float* dx) {
  AverageBackward(spec, sample_count, dy, dx);
}

}  // namespace pando::cpu
