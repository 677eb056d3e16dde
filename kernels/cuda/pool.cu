// Pools on the GPU. Backward gathers: each input pixel adds the gradients of the windows around it,
// in the order of windows, so no two threads add to one place. Channels are adjacent: a thread has
// as many as one load takes.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/map.h"

namespace pando::cuda {
namespace {

struct Range {
  uint32_t first = 0;
  uint32_t last = 0;
};

// One axis of a pool: the input's `size` pixels, and the `count` windows of the output.
struct FixedWindows {
  uint32_t size, count, window, stride, padding;

  __device__ Range Pixels(uint32_t i) const {
    const uint32_t from = i * stride;
    return {from > padding ? from - padding : 0, min(from + window - padding, size)};
  }
  // Returns the windows that contain a pixel.
  __device__ Range Windows(uint32_t pixel) const {
    const uint32_t at = pixel + padding;
    return {at + 1 > window ? (at + 1 - window + stride - 1) / stride : 0,
            min(at / stride + 1, count)};
  }
};
struct AdaptiveWindows {
  uint32_t size, count;

  __device__ Range Pixels(uint32_t i) const {
    return {i * size / count, ((i + 1) * size + count - 1) / count};
  }
  __device__ Range Windows(uint32_t pixel) const {
    return {pixel * count / size, min(((pixel + 1) * count + size - 1) / size, count)};
  }
};

template <class Axis>
struct Windows {
  Axis rows;
  Axis columns;
  uint32_t channels;
  float fixed_scale;  // 1 / pixels of a window; 0: 1 / their actual number

  __device__ uint32_t in_size() const { return rows.size * columns.size * channels; }
  __device__ uint32_t out_size() const { return rows.count * columns.count * channels; }
  __device__ float Scale(const Range& y, const Range& x) const {
    if (fixed_scale != 0.0f) return fixed_scale;
    return 1.0f / static_cast<float>((y.last - y.first) * (x.last - x.first));
  }
};

Windows<FixedWindows> MakeWindows(const Pool2dSpec& spec) {
  const SampleShape out = spec.output();
  return {{spec.input.height, out.height, spec.window, spec.stride, spec.padding},
          {spec.input.width, out.width, spec.window, spec.stride, spec.padding},
          spec.input.channels,
          1.0f / static_cast<float>(size_t{spec.window} * spec.window)};
}
Windows<AdaptiveWindows> MakeWindows(const AdaptivePool2dSpec& spec) {
  return {{spec.input.height, spec.out_height},
          {spec.input.width, spec.out_width},
          spec.input.channels,
          0.0f};
}

// The part of the block row's sample that a thread makes: kWidth channels of one result pixel.
struct Place {
  uint32_t index;  // the first one's element
  uint32_t y, x, channel;
};
template <int kWidth>
__device__ Place FindPlace(uint32_t width, uint32_t channels) {
  const uint32_t index = IndexInSample() * kWidth, pixel = index / channels;
  return {index, pixel / width, pixel % width, index % channels};
}

// Calls f(y, x) for each pixel, row by row.
template <class F>
__device__ void ForEach(Range rows, Range columns, F f) {
  for (uint32_t y = rows.first; y < rows.last; ++y) {
    for (uint32_t x = columns.first; x < columns.last; ++x) f(y, x);
  }
}

template <class T, int kWidth>
__global__ void MaxForward(Windows<FixedWindows> windows, const T* x, T* y, int32_t* argmax) {
  const Place at = FindPlace<kWidth>(windows.columns.count, windows.channels);
  if (at.index >= windows.out_size()) return;
  x += size_t{blockIdx.y} * windows.in_size() + at.channel;
  const size_t to = size_t{blockIdx.y} * windows.out_size() + at.index;
  float largest[kWidth] = {};
  Pack<int32_t, kWidth> where;
  for (int k = 0; k < kWidth; ++k) where.at[k] = -1;
  ForEach(windows.rows.Pixels(at.y), windows.columns.Pixels(at.x), [&](uint32_t py, uint32_t px) {
    const uint32_t pixel = py * windows.columns.size + px;
    float values[kWidth];
    LoadFloats<kWidth>(x + pixel * windows.channels, values);
    for (int k = 0; k < kWidth; ++k) {
      if (where.at[k] >= 0 && !(values[k] > largest[k])) continue;
      largest[k] = values[k];
      where.at[k] = static_cast<int32_t>(pixel);
    }
  });
  StoreFloats<kWidth>(largest, y + to);
  StorePack(where, argmax + to);
}

template <class T, int kWidth>
__global__ void MaxBackward(Windows<FixedWindows> windows, const int32_t* argmax, const T* dy,
                            T* dx) {
  const Place at = FindPlace<kWidth>(windows.columns.size, windows.channels);
  if (at.index >= windows.in_size()) return;
  const size_t first = size_t{blockIdx.y} * windows.out_size() + at.channel;
  const auto self = static_cast<int32_t>(at.y * windows.columns.size + at.x);
  float sums[kWidth] = {};
  ForEach(windows.rows.Windows(at.y), windows.columns.Windows(at.x), [&](uint32_t wy, uint32_t wx) {
    const uint32_t window = (wy * windows.columns.count + wx) * windows.channels;
    float values[kWidth];
    LoadFloats<kWidth>(dy + first + window, values);
    const Pack<int32_t, kWidth> chosen = LoadPack<kWidth>(argmax + first + window);
    for (int k = 0; k < kWidth; ++k) {
      if (chosen.at[k] == self) sums[k] += values[k];
    }
  });
  StoreFloats<kWidth>(sums, dx + size_t{blockIdx.y} * windows.in_size() + at.index);
}

// Averages a window's pixels; or, in backward, a pixel's part of its windows' gradients.
template <class T, int kWidth, bool kBackward, class Axis>
__global__ void Average(Windows<Axis> windows, const T* from, T* to) {
  const Axis &rows = windows.rows, &columns = windows.columns;
  const uint32_t in_size = windows.in_size(), out_size = windows.out_size();
  const Place at = FindPlace<kWidth>(kBackward ? columns.size : columns.count, windows.channels);
  if (at.index >= (kBackward ? in_size : out_size)) return;
  from += size_t{blockIdx.y} * (kBackward ? out_size : in_size) + at.channel;
  const Range from_rows = kBackward ? rows.Windows(at.y) : rows.Pixels(at.y);
  const Range from_columns = kBackward ? columns.Windows(at.x) : columns.Pixels(at.x);
  const uint32_t from_width = kBackward ? columns.count : columns.size;
  float sums[kWidth] = {};
  ForEach(from_rows, from_columns, [&](uint32_t y, uint32_t x) {
    float values[kWidth];
    LoadFloats<kWidth>(from + (y * from_width + x) * windows.channels, values);
    const float scale = kBackward ? windows.Scale(rows.Pixels(y), columns.Pixels(x)) : 1.0f;
    for (int k = 0; k < kWidth; ++k) sums[k] += values[k] * scale;
  });
  const float scale = kBackward ? 1.0f : windows.Scale(from_rows, from_columns);
  for (int k = 0; k < kWidth; ++k) sums[k] *= scale;
  StoreFloats<kWidth>(sums, to + size_t{blockIdx.y} * (kBackward ? in_size : out_size) + at.index);
}

template <bool kBackward, class Spec>
void LaunchAverage(CudaDevice& gpu, const Spec& spec, uint32_t sample_count, const void* from,
                   void* to) {
  const auto windows = MakeWindows(spec);
  const size_t in = spec.input.size(), out = spec.output().size();
  WithPacks(gpu.element(), spec.input.channels, [&]<class T, int kWidth>() {
    Launch(gpu, SampleGrid(kBackward ? in : out, kBackward ? out : in, kWidth, sample_count),
           dim3(kMapThreads), Average<T, kWidth, kBackward, decltype(windows.rows)>, windows, from,
           to);
  });
}

}  // namespace

void MaxPoolForward(CudaDevice& gpu, const Pool2dSpec& spec, uint32_t sample_count, const void* x,
                    void* y, int32_t* argmax) {
  WithPacks(gpu.element(), spec.input.channels, [&]<class T, int kWidth>() {
    Launch(gpu, SampleGrid(spec.output().size(), spec.input.size(), kWidth, sample_count),
           dim3(kMapThreads), MaxForward<T, kWidth>, MakeWindows(spec), x, y, argmax);
  });
}

void MaxPoolBackward(CudaDevice& gpu, const Pool2dSpec& spec, uint32_t sample_count,
                     const int32_t* argmax, const void* dy, void* dx) {
  WithPacks(gpu.element(), spec.input.channels, [&]<class T, int kWidth>() {
    Launch(gpu, SampleGrid(spec.input.size(), spec.output().size(), kWidth, sample_count),
           dim3(kMapThreads), MaxBackward<T, kWidth>, MakeWindows(spec), argmax, dy, dx);
  });
}

void AveragePoolForward(CudaDevice& gpu, const Pool2dSpec& spec, uint32_t sample_count,
                        const void* x, void* y) {
  LaunchAverage<false>(gpu, spec, sample_count, x, y);
}
void AveragePoolBackward(CudaDevice& gpu, const Pool2dSpec& spec, uint32_t sample_count,
                         const void* dy, void* dx) {
  LaunchAverage<true>(gpu, spec, sample_count, dy, dx);
}
void AdaptiveAveragePoolForward(CudaDevice& gpu, const AdaptivePool2dSpec& spec,
                                uint32_t sample_count, const void* x, void* y) {
  LaunchAverage<false>(gpu, spec, sample_count, x, y);
}
void AdaptiveAveragePoolBackward(CudaDevice& gpu, const AdaptivePool2dSpec& spec,
                                 uint32_t sample_count, const void* dy, void* dx) {
  LaunchAverage<true>(gpu, spec, sample_count, dy, dx);
}

}  // namespace pando::cuda
