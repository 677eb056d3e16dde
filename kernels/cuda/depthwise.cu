#include "kernels/cuda/depthwise.h"

#include <algorithm>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/scratch.h"

namespace pando::cuda {
namespace {

struct Geometry {
  uint32_t in_height, in_width;
  uint32_t out_height, out_width;
  uint32_t channels;
  uint32_t kernel, stride, padding;
};

Geometry MakeGeometry(const Conv2dSpec& spec) {
  const SampleShape out = spec.conv_output();
  return {spec.input.height, spec.input.width, out.height,  out.width,
          out.channels,      spec.kernel,      spec.stride, spec.padding};
}

constexpr int kGradientWidth = 2;  // channels of a thread, with nine sums each: few registers

struct Scratch {
  float* weight;    // [taps, channels]
  float* dweight;   // the same for its gradient
  float* run_sums;  // for dweight, up to nine taps at a time
};

Scratch Carve(const Conv2dSpec& spec, ScratchCarver& carver) {
  const auto take = [&](size_t bytes) { return reinterpret_cast<float*>(carver.Take(bytes)); };
  Scratch s{};
  s.weight = take(spec.weight_size() * sizeof(float));
  s.dweight = take(spec.weight_size() * sizeof(float));
  s.run_sums = take(RunSumsBytes(spec.out_channels, kGradientWidth, 9));
  return s;
}

// ------------------------------------------------------------------------------- forward, and to x

// One thread: kWidth channels of one pixel of the result. Blocks: the rows of all samples along x,
// the pixels and channels of a row along y.
template <class T, int kWidth>
__global__ void Forward(Geometry g, const T* x, const float* weight, T* y) {
  const uint32_t columns = g.channels / kWidth;
  const uint32_t i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i >= g.out_width * columns) return;
  const uint32_t channel = i % columns * kWidth, out_x = i / columns;
  const size_t sample = blockIdx.x / g.out_height;
  const uint32_t out_y = blockIdx.x % g.out_height;
  float sums[kWidth] = {};
  for (uint32_t ky = 0; ky < g.kernel; ++ky) {
    const uint32_t row = out_y * g.stride + ky - g.padding;  // wraps where outside
    if (row >= g.in_height) continue;
    for (uint32_t kx = 0; kx < g.kernel; ++kx) {
      const uint32_t column = out_x * g.stride + kx - g.padding;
      if (column >= g.in_width) continue;
      float values[kWidth], factors[kWidth];
      LoadFloats<kWidth>(
          x + ((sample * g.in_height + row) * g.in_width + column) * g.channels + channel, values);
      LoadFloats<kWidth>(weight + (ky * g.kernel + kx) * g.channels + channel, factors);
      for (int k = 0; k < kWidth; ++k) sums[k] += values[k] * factors[k];
    }
  }
  StoreFloats<kWidth>(sums, y + (size_t{blockIdx.x} * g.out_width + out_x) * g.channels + channel);
}

// One thread: kWidth channels of one pixel of the input, which gathers from the results that it
// entered.
template <class T, int kWidth>
__global__ void DataGradient(Geometry g, const T* dy, const float* weight, T* dx) {
  const uint32_t columns = g.channels / kWidth;
  const uint32_t i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i >= g.in_width * columns) return;
  const uint32_t channel = i % columns * kWidth, in_x = i / columns;
  const size_t sample = blockIdx.x / g.in_height;
  const uint32_t in_y = blockIdx.x % g.in_height;
  float sums[kWidth] = {};
  for (uint32_t ky = 0; ky < g.kernel; ++ky) {
    const uint32_t from_y = in_y + g.padding - ky;  // wraps outside; the next one too
    if (from_y % g.stride != 0 || from_y / g.stride >= g.out_height) continue;
    for (uint32_t kx = 0; kx < g.kernel; ++kx) {
      const uint32_t from_x = in_x + g.padding - kx;
      if (from_x % g.stride != 0 || from_x / g.stride >= g.out_width) continue;
      const size_t pixel =
          (sample * g.out_height + from_y / g.stride) * g.out_width + from_x / g.stride;
      float values[kWidth], factors[kWidth];
      LoadFloats<kWidth>(dy + pixel * g.channels + channel, values);
      LoadFloats<kWidth>(weight + (ky * g.kernel + kx) * g.channels + channel, factors);
      for (int k = 0; k < kWidth; ++k) sums[k] += values[k] * factors[k];
    }
  }
  StoreFloats<kWidth>(sums, dx + (size_t{blockIdx.x} * g.in_width + in_x) * g.channels + channel);
}

// ------------------------------------------------------------------------------------ to the
// weights

// All taps at once, so that dy is read once and x once from memory: sums over the pixels of the
// result.
template <class T, int kWidth, int kKernel>
struct AllProducts {
  Geometry g;
  const T* x;
  const T* dy;

  struct Terms {
    const AllProducts& all;
    uint32_t channel;
    __device__ void Add(size_t pixel, float (&sums)[kKernel * kKernel][kWidth]) const {
      const Geometry& g = all.g;
      // 64-bit divisions would take longer than the taps.
      const auto number = static_cast<uint32_t>(pixel);
      const uint32_t rows = number / g.out_width, out_x = number % g.out_width;
      const uint32_t sample = rows / g.out_height, out_y = rows % g.out_height;
      const size_t first_row = size_t{sample} * g.in_height;
      float gradients[kWidth];
      LoadFloats<kWidth>(all.dy + pixel * g.channels + channel, gradients);
#pragma unroll
      for (int tap = 0; tap < kKernel * kKernel; ++tap) {
        const uint32_t row = out_y * g.stride + tap / kKernel - g.padding;  // wraps where outside
        const uint32_t column = out_x * g.stride + tap % kKernel - g.padding;
        if (row >= g.in_height || column >= g.in_width) continue;
        float values[kWidth];
        LoadFloats<kWidth>(all.x + ((first_row + row) * g.in_width + column) * g.channels + channel,
                           values);
        for (int k = 0; k < kWidth; ++k) sums[tap][k] += values[k] * gradients[k];
      }
    }
  };
  __device__ Terms Begin(uint32_t channel) const { return {*this, channel}; }
};

// One tap, for a kernel of any size.
template <class T>
struct TapProducts {
  Geometry g;
  const T* x;
  const T* dy;
  uint32_t ky, kx;

  struct Terms {
    const TapProducts& all;
    uint32_t channel;
    __device__ void Add(size_t pixel, float (&sums)[1][1]) const {
      const Geometry& g = all.g;
      const auto out_x = static_cast<uint32_t>(pixel % g.out_width);
      const size_t rows = pixel / g.out_width;
      const auto out_y = static_cast<uint32_t>(rows % g.out_height);
      const uint32_t row = out_y * g.stride + all.ky - g.padding;  // wraps where outside
      const uint32_t column = out_x * g.stride + all.kx - g.padding;
      if (row >= g.in_height || column >= g.in_width) return;
      const size_t from = (rows / g.out_height * g.in_height + row) * g.in_width + column;
      sums[0][0] += ToFloat(all.x[from * g.channels + channel]) *
                    ToFloat(all.dy[pixel * g.channels + channel]);
    }
  };
  __device__ Terms Begin(uint32_t channel) const { return {*this, channel}; }
};

template <int kSums>
struct StoreTotals {
  float* to;  // [sum, channel]
  uint32_t channels;
  __device__ void operator()(uint32_t channel, const double (&totals)[kSums]) const {
    for (int s = 0; s < kSums; ++s) {
      to[size_t{channels} * s + channel] = static_cast<float>(totals[s]);
    }
  }
};

template <class T, int kWidth>
void WeightGradient3(CudaDevice& gpu, const Geometry& g, size_t pixels, const T* x, const T* dy,
                     const Scratch& s) {
  PANDO_CHECK(pixels <= UINT32_MAX);
  SumColumns<9, kWidth>(gpu, pixels, g.channels, AllProducts<T, kWidth, 3>{g, x, dy},
                        StoreTotals<9>{s.dweight, g.channels}, s.run_sums);
}

template <class T>
void WeightGradient(CudaDevice& gpu, const Conv2dSpec& spec, uint32_t sample_count, const T* x,
                    const T* dy, const Scratch& s) {
  const Geometry g = MakeGeometry(spec);
  const size_t pixels = size_t{sample_count} * g.out_height * g.out_width;
  if (spec.kernel == 3 && g.channels % kGradientWidth == 0) {
    return WeightGradient3<T, kGradientWidth>(gpu, g, pixels, x, dy, s);
  }
  if (spec.kernel == 3) return WeightGradient3<T, 1>(gpu, g, pixels, x, dy, s);
  for (uint32_t tap = 0; tap < spec.kernel * spec.kernel; ++tap) {
    SumColumns<1, 1>(gpu, pixels, g.channels,
                     TapProducts<T>{g, x, dy, tap / spec.kernel, tap % spec.kernel},
                     StoreTotals<1>{s.dweight + size_t{tap} * g.channels, g.channels}, s.run_sums);
  }
}

template <class T, int kWidth>
struct Elements {
  const T* x;
  uint32_t channels;
  struct Terms {
    const T* x;
    uint32_t channels;
    __device__ void Add(size_t pixel, float (&sums)[1][kWidth]) const {
      float values[kWidth];
      LoadFloats<kWidth>(x + pixel * channels, values);
      for (int k = 0; k < kWidth; ++k) sums[0][k] += values[k];
    }
  };
  __device__ Terms Begin(uint32_t channel) const { return {x + channel, channels}; }
};

dim3 MakeGrid(const Geometry& g, uint32_t width, uint32_t height, int lanes,
              uint32_t sample_count) {
  const size_t row_threads = size_t{width} * (g.channels / static_cast<uint32_t>(lanes));
  return dim3(height * sample_count, DivideUp(row_threads, kMapThreads));
}

}  // namespace

size_t DepthwiseScratchBytes(CudaDevice&, const Conv2dSpec& spec) {
  if (!IsDepthwise(spec)) return 0;
  ScratchCarver counter;
  Carve(spec, counter);
  return counter.used_bytes();
}

void DepthwiseForward(CudaDevice& gpu, const Conv2dSpec& spec, uint32_t sample_count, const void* x,
                      const float* weight, void* y, std::span<std::byte> scratch) {
  ScratchCarver carver(scratch);
  const Scratch s = Carve(spec, carver);
  const Geometry g = MakeGeometry(spec);
  TransposeFloats(gpu, g.channels, spec.kernel * spec.kernel, weight, s.weight);
  WithElement(gpu.element(), [&]<class T>() {
    WithWidth<T>(g.channels, [&]<int kWidth>() {
      Launch(gpu, MakeGrid(g, g.out_width, g.out_height, kWidth, sample_count), dim3(kMapThreads),
             Forward<T, kWidth>, g, static_cast<const T*>(x), static_cast<const float*>(s.weight),
             static_cast<T*>(y));
    });
  });
}

void DepthwiseBackward(CudaDevice& gpu, const Conv2dSpec& spec, uint32_t sample_count,
                       const DepthwiseGradients& args, std::span<std::byte> scratch) {
  ScratchCarver carver(scratch);
  const Scratch s = Carve(spec, carver);
  const Geometry g = MakeGeometry(spec);
  const uint32_t taps = spec.kernel * spec.kernel;
  WithElement(gpu.element(), [&]<class T>() {
    const auto* dy = static_cast<const T*>(args.dy);
    WeightGradient(gpu, spec, sample_count, static_cast<const T*>(args.x), dy, s);
    TransposeFloats(gpu, taps, g.channels, s.dweight, args.dweight);
    if (args.dx == nullptr) return;
    TransposeFloats(gpu, g.channels, taps, args.weight, s.weight);
    WithWidth<T>(g.channels, [&]<int kWidth>() {
      Launch(gpu, MakeGrid(g, g.in_width, g.in_height, kWidth, sample_count), dim3(kMapThreads),
             DataGradient<T, kWidth>, g, dy, static_cast<const float*>(s.weight),
             static_cast<T*>(args.dx));
    });
  });
}

void SumElements(CudaDevice& gpu, size_t pixels, uint32_t channels, const void* x, float* sums,
                 std::byte* run_sums) {
  WithElement(gpu.element(), [&]<class T>() {
    WithWidth<T>(channels, [&]<int kWidth>() {
      SumColumns<1, kWidth>(gpu, pixels, channels,
                            Elements<T, kWidth>{static_cast<const T*>(x), channels},
                            StoreTotals<1>{sums, channels}, reinterpret_cast<float*>(run_sums));
    });
  });
}

}  // namespace pando::cuda
