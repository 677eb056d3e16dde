// Pools on the GPU. Backward gathers: each input pixel adds the gradients of the windows around it,
// in the order of windows, so no two threads add to one place. Channels are adjacent: a thread has
// as many as one load takes.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/map.h"

namespace pando::cuda {
namespace {

struct Range {
  uint32_t first = 0;
  uint32_t last = 0;
};

// Along one axis: pixels of the input, `count` windows of the output.
struct FixedWindows {
  uint32_t size, count, window, stride, padding;

  __device__ Range Pixels(uint32_t i) const {
    const uint32_t from = i * stride;
    return {from > padding ? from - padding : 0, min(from + window - padding, size)};
  }
  // The windows that contain a pixel.
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
  float fixed_scale;  // 1 / pixels of a window; 0: the actual number
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

// The i-th place of [height, width, columns], with columns of kWidth channels each.
struct Place {
  uint32_t y, x, channel;
};
template <int kWidth>
__device__ Place FindPlace(uint32_t i, uint32_t width, uint32_t channels) {
  const uint32_t columns = channels / kWidth;
  return {i / columns / width, i / columns % width, i % columns * kWidth};
}

// One block row per sample; one thread has kWidth channels of a pixel of the result.
template <class T, int kWidth>
__global__ void MaxForward(Windows<FixedWindows> windows, const T* x, T* y, int32_t* argmax) {
  const uint32_t in_size = windows.rows.size * windows.columns.size * windows.channels;
  const uint32_t out_size = windows.rows.count * windows.columns.count * windows.channels;
  x += size_t{blockIdx.y} * in_size;
  y += size_t{blockIdx.y} * out_size;
  argmax += size_t{blockIdx.y} * out_size;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < out_size / kWidth;
       i += gridDim.x * blockDim.x) {
    const Place at = FindPlace<kWidth>(i, windows.columns.count, windows.channels);
    const Range rows = windows.rows.Pixels(at.y), columns = windows.columns.Pixels(at.x);
    float largest[kWidth] = {};
    Pack<int32_t, kWidth> where;
    for (int k = 0; k < kWidth; ++k) where.at[k] = -1;
    for (uint32_t py = rows.first; py < rows.last; ++py) {
      for (uint32_t px = columns.first; px < columns.last; ++px) {
        const uint32_t pixel = py * windows.columns.size + px;
        float values[kWidth];
        LoadFloats<kWidth>(x + pixel * windows.channels + at.channel, values);
        for (int k = 0; k < kWidth; ++k) {
          if (where.at[k] >= 0 && !(values[k] > largest[k])) continue;
          largest[k] = values[k];
          where.at[k] = static_cast<int32_t>(pixel);
        }
      }
    }
    StoreFloats<kWidth>(largest, y + i * kWidth);
    StorePack(where, argmax + i * kWidth);
  }
}

template <class T, int kWidth>
__global__ void MaxBackward(Windows<FixedWindows> windows, const int32_t* argmax, const T* dy,
                            T* dx) {
  const uint32_t in_size = windows.rows.size * windows.columns.size * windows.channels;
  const uint32_t out_size = windows.rows.count * windows.columns.count * windows.channels;
  dx += size_t{blockIdx.y} * in_size;
  dy += size_t{blockIdx.y} * out_size;
  argmax += size_t{blockIdx.y} * out_size;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < in_size / kWidth;
       i += gridDim.x * blockDim.x) {
    const Place at = FindPlace<kWidth>(i, windows.columns.size, windows.channels);
    const Range rows = windows.rows.Windows(at.y), columns = windows.columns.Windows(at.x);
    const auto self = static_cast<int32_t>(at.y * windows.columns.size + at.x);
    float sums[kWidth] = {};
    for (uint32_t wy = rows.first; wy < rows.last; ++wy) {
      for (uint32_t wx = columns.first; wx < columns.last; ++wx) {
        const uint32_t from = (wy * windows.columns.count + wx) * windows.channels + at.channel;
        float values[kWidth];
        LoadFloats<kWidth>(dy + from, values);
        const Pack<int32_t, kWidth> chosen = LoadPack<kWidth>(argmax + from);
        for (int k = 0; k < kWidth; ++k) {
          if (chosen.at[k] == self) sums[k] += values[k];
        }
      }
    }
    StoreFloats<kWidth>(sums, dx + i * kWidth);
  }
}

template <class T, int kWidth, class Axis>
__global__ void AverageForward(Windows<Axis> windows, const T* x, T* y) {
  const uint32_t in_size = windows.rows.size * windows.columns.size * windows.channels;
  const uint32_t out_size = windows.rows.count * windows.columns.count * windows.channels;
  x += size_t{blockIdx.y} * in_size;
  y += size_t{blockIdx.y} * out_size;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < out_size / kWidth;
       i += gridDim.x * blockDim.x) {
    const Place at = FindPlace<kWidth>(i, windows.columns.count, windows.channels);
    const Range rows = windows.rows.Pixels(at.y), columns = windows.columns.Pixels(at.x);
    float sums[kWidth] = {};
    for (uint32_t py = rows.first; py < rows.last; ++py) {
      for (uint32_t px = columns.first; px < columns.last; ++px) {
        float values[kWidth];
        LoadFloats<kWidth>(x + (py * windows.columns.size + px) * windows.channels + at.channel,
                           values);
        for (int k = 0; k < kWidth; ++k) sums[k] += values[k];
      }
    }
    const float scale = windows.Scale(rows, columns);
    for (int k = 0; k < kWidth; ++k) sums[k] *= scale;
    StoreFloats<kWidth>(sums, y + i * kWidth);
  }
}

template <class T, int kWidth, class Axis>
__global__ void AverageBackward(Windows<Axis> windows, const T* dy, T* dx) {
  const uint32_t in_size = windows.rows.size * windows.columns.size * windows.channels;
  const uint32_t out_size = windows.rows.count * windows.columns.count * windows.channels;
  dx += size_t{blockIdx.y} * in_size;
  dy += size_t{blockIdx.y} * out_size;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < in_size / kWidth;
       i += gridDim.x * blockDim.x) {
    const Place at = FindPlace<kWidth>(i, windows.columns.size, windows.channels);
    const Range rows = windows.rows.Windows(at.y), columns = windows.columns.Windows(at.x);
    float sums[kWidth] = {};
    for (uint32_t wy = rows.first; wy < rows.last; ++wy) {
      for (uint32_t wx = columns.first; wx < columns.last; ++wx) {
        const float scale = windows.Scale(windows.rows.Pixels(wy), windows.columns.Pixels(wx));
        float values[kWidth];
        LoadFloats<kWidth>(dy + (wy * windows.columns.count + wx) * windows.channels + at.channel,
                           values);
        for (int k = 0; k < kWidth; ++k) sums[k] += values[k] * scale;
      }
    }
    StoreFloats<kWidth>(sums, dx + i * kWidth);
  }
}

// Calls f.template operator()<T, kWidth>().
template <class F>
void WithPacks(CudaDevice& gpu, uint32_t channels, F&& f) {
  WithElement(gpu.element(), [&]<class T>() {
    WithWidth<T>(channels, [&]<int kWidth>() { f.template operator()<T, kWidth>(); });
  });
}

template <class Spec>
void LaunchAverageForward(CudaDevice& gpu, const Spec& spec, uint32_t sample_count, const void* x,
                          void* y) {
  WithPacks(gpu, spec.input.channels, [&]<class T, int kWidth>() {
    const auto windows = MakeWindows(spec);
    Launch(gpu, SampleGrid(spec.output().size(), kWidth, sample_count), dim3(kMapThreads),
           AverageForward<T, kWidth, decltype(windows.rows)>, windows, static_cast<const T*>(x),
           static_cast<T*>(y));
  });
}

template <class Spec>
void LaunchAverageBackward(CudaDevice& gpu, const Spec& spec, uint32_t sample_count, const void* dy,
                           void* dx) {
  WithPacks(gpu, spec.input.channels, [&]<class T, int kWidth>() {
    const auto windows = MakeWindows(spec);
    Launch(gpu, SampleGrid(spec.input.size(), kWidth, sample_count), dim3(kMapThreads),
           AverageBackward<T, kWidth, decltype(windows.rows)>, windows, static_cast<const T*>(dy),
           static_cast<T*>(dx));
  });
}

}  // namespace

void MaxPoolForward(CudaDevice& gpu, const Pool2dSpec& spec, uint32_t sample_count, const void* x,
                    void* y, int32_t* argmax) {
  WithPacks(gpu, spec.input.channels, [&]<class T, int kWidth>() {
    Launch(gpu, SampleGrid(spec.output().size(), kWidth, sample_count), dim3(kMapThreads),
           MaxForward<T, kWidth>, MakeWindows(spec), static_cast<const T*>(x), static_cast<T*>(y),
           argmax);
  });
}

void MaxPoolBackward(CudaDevice& gpu, const Pool2dSpec& spec, uint32_t sample_count,
                     const int32_t* argmax, const void* dy, void* dx) {
  WithPacks(gpu, spec.input.channels, [&]<class T, int kWidth>() {
    Launch(gpu, SampleGrid(spec.input.size(), kWidth, sample_count), dim3(kMapThreads),
           MaxBackward<T, kWidth>, MakeWindows(spec), argmax, static_cast<const T*>(dy),
           static_cast<T*>(dx));
  });
}

void AveragePoolForward(CudaDevice& gpu, const Pool2dSpec& spec, uint32_t sample_count,
                        const void* x, void* y) {
  LaunchAverageForward(gpu, spec, sample_count, x, y);
}
void AveragePoolBackward(CudaDevice& gpu, const Pool2dSpec& spec, uint32_t sample_count,
                         const void* dy, void* dx) {
  LaunchAverageBackward(gpu, spec, sample_count, dy, dx);
}
void AdaptiveAveragePoolForward(CudaDevice& gpu, const AdaptivePool2dSpec& spec,
                                uint32_t sample_count, const void* x, void* y) {
  LaunchAverageForward(gpu, spec, sample_count, x, y);
}
void AdaptiveAveragePoolBackward(CudaDevice& gpu, const AdaptivePool2dSpec& spec,
                                 uint32_t sample_count, const void* dy, void* dx) {
  LaunchAverageBackward(gpu, spec, sample_count, dy, dx);
}

}  // namespace pando::cuda
