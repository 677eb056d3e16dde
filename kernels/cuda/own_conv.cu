#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/map.h"
#include "kernels/cuda/own_conv.h"
#include "kernels/cuda/reduce.h"

namespace pando::cuda {
namespace {

constexpr int kGradientWidth = 2;  // channels per thread, with nine sums each: few registers

struct Scratch {
  const Conv2dSpec& spec;
  ScratchCarver carver = {};
  float* weight = carver.Take<float>(spec.weight_size());  // [taps, channels]
  float* dweight = carver.Take<float>(spec.weight_size());
  std::byte* run_sums =  // for dweight, up to nine taps at a time
      carver.Take<std::byte>(RunSumsBytes(spec.out_channels, kGradientWidth, 9));
};

// ------------------------------------------------------------------------------- forward, and to x

// Each thread gathers kWidth channels of one pixel of the result: y, or dx in backward. Blocks have
// the rows of all samples along x, and the pixels and channels of a row along y.
template <class T, int kWidth, bool kBackward>
__global__ void Gather(ConvGeometry g, const T* from, const float* weight, bool adds, T* to) {
  const SampleShape source = kBackward ? g.out : g.in, result = kBackward ? g.in : g.out;
  const uint32_t columns = result.channels / kWidth;
  const uint32_t i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i >= result.width * columns) return;
  const uint32_t channel = i % columns * kWidth, x = i / columns;
  const size_t sample = blockIdx.x / result.height;
  const uint32_t y = blockIdx.x % result.height;
  to += (size_t{blockIdx.x} * result.width + x) * result.channels + channel;
  float sums[kWidth] = {};
  if (adds) LoadFloats<kWidth>(to, sums);
  for (uint32_t ky = 0; ky < g.spec.kernel; ++ky) {
    const uint32_t row = FindSource<kBackward>(g, y, ky);
    if (row >= source.height) continue;
    for (uint32_t kx = 0; kx < g.spec.kernel; ++kx) {
      const uint32_t column = FindSource<kBackward>(g, x, kx);
      if (column >= source.width) continue;
      const size_t pixel = (sample * source.height + row) * source.width + column;
      float values[kWidth], factors[kWidth];
      LoadFloats<kWidth>(from + pixel * source.channels + channel, values);
      LoadFloats<kWidth>(weight + (ky * g.spec.kernel + kx) * source.channels + channel, factors);
      for (int k = 0; k < kWidth; ++k) sums[k] += values[k] * factors[k];
    }
  }
  StoreFloats<kWidth>(sums, to);
}

template <bool kBackward>
void LaunchGather(CudaDevice& gpu, const Conv2dSpec& spec, uint32_t sample_count, const void* from,
                  const float* weight, bool adds, void* to) {
  const ConvGeometry g(spec);
  const SampleShape result = kBackward ? g.in : g.out;
  WithPacks(gpu.element(), result.channels, [&]<class T, int kWidth>() {
    const size_t row_threads = size_t{result.width} * (result.channels / kWidth);
    const auto rows = CheckedCast<uint32_t>(size_t{result.height} * sample_count);
    Launch(gpu, dim3(rows, DivideUp(row_threads, kMapThreads)), dim3(kMapThreads),
           Gather<T, kWidth, kBackward>, g, from, weight, adds, to);
  });
}

// -------------------------------------------------------------------------------- to the weights

// Sums over the pixels of the result: for all taps of a kernel of size kKernel at once, so that dy
// is read once and x once from memory; or for one tap of any kernel, if kKernel is 0.
template <class T, int kWidth, int kKernel>
struct Products {
  static constexpr int kTaps = kKernel == 0 ? 1 : kKernel * kKernel;
  ConvGeometry g;
  const T* x;
  const T* dy;
  uint32_t one_tap;

  __device__ void Begin(uint32_t channel) {
    x += channel;
    dy += channel;
  }
  __device__ void Add(size_t pixel, float (&sums)[kTaps][kWidth]) const {
    const uint32_t kernel = kKernel > 0 ? kKernel : g.spec.kernel;
    // 64-bit divisions would take longer than the taps.
    const auto number = static_cast<uint32_t>(pixel);
    const uint32_t rows = number / g.out.width, out_x = number % g.out.width;
    const uint32_t sample = rows / g.out.height, out_y = rows % g.out.height;
    float gradients[kWidth];
    LoadFloats<kWidth>(dy + pixel * g.out.channels, gradients);
#pragma unroll
    for (int i = 0; i < kTaps; ++i) {
      const uint32_t tap = kKernel > 0 ? i : one_tap;
      const uint32_t row = FindSource<false>(g, out_y, tap / kernel);
      const uint32_t column = FindSource<false>(g, out_x, tap % kernel);
      if (row >= g.in.height || column >= g.in.width) continue;
      float values[kWidth];
      LoadFloats<kWidth>(
          x + ((size_t{sample} * g.in.height + row) * g.in.width + column) * g.in.channels, values);
      for (int k = 0; k < kWidth; ++k) sums[i][k] += values[k] * gradients[k];
    }
  }
};

template <class T, int kWidth, int kKernel>
void SumTaps(CudaDevice& gpu, const ConvGeometry& g, const Conv2dBackwardArgs& args, const void* dy,
             const Scratch& s) {
  const size_t pixels = size_t{args.sample_count} * g.out.height * g.out.width;
  PANDO_CHECK(pixels <= UINT32_MAX);
  using Sums = Products<T, kWidth, kKernel>;
  for (uint32_t tap = 0; tap < g.spec.kernel * g.spec.kernel; tap += Sums::kTaps) {
    SumColumns<Sums::kTaps, kWidth>(
        gpu, pixels, g.out.channels,
        Sums{g, static_cast<const T*>(args.x), static_cast<const T*>(dy), tap},
        StoreTotals<Sums::kTaps>{s.dweight + size_t{tap} * g.out.channels, g.out.channels},
        reinterpret_cast<float*>(s.run_sums));
  }
}

}  // namespace

size_t DepthwiseScratchBytes(CudaDevice&, const Conv2dSpec& spec) {
  return IsDepthwise(spec) ? Scratch{spec}.carver.used_bytes() : 0;
}

void DepthwiseForward(CudaDevice& gpu, const Conv2dSpec& spec, const Conv2dForwardArgs& args,
                      void* y, std::span<std::byte> scratch) {
  const Scratch s{spec, ScratchCarver(scratch)};
  TransposeFloats(gpu, spec.out_channels, spec.kernel * spec.kernel, args.weight, s.weight);
  LaunchGather<false>(gpu, spec, args.sample_count, args.x, s.weight, /*adds=*/false, y);
}

void DepthwiseBackward(CudaDevice& gpu, const Conv2dSpec& spec, const Conv2dBackwardArgs& args,
                       const void* dy, std::span<std::byte> scratch) {
  const Scratch s{spec, ScratchCarver(scratch)};
  const ConvGeometry g(spec);
  const uint32_t taps = spec.kernel * spec.kernel;
  WithElement(gpu.element(), [&]<class T>() {
    if (spec.kernel == 3 && spec.out_channels % kGradientWidth == 0) {
      SumTaps<T, kGradientWidth, 3>(gpu, g, args, dy, s);
    } else if (spec.kernel == 3) {
      SumTaps<T, 1, 3>(gpu, g, args, dy, s);
    } else {
      SumTaps<T, 1, 0>(gpu, g, args, dy, s);
    }
  });
  TransposeFloats(gpu, taps, spec.out_channels, s.dweight, args.dweight);
  if (args.dx == nullptr) return;
  TransposeFloats(gpu, spec.out_channels, taps, args.weight, s.weight);
  LaunchGather<true>(gpu, spec, args.sample_count, dy, s.weight, args.adds_dx, args.dx);
}

// ------------------------------------------------------------------------ direct, for any shape

namespace {

// Computes the result with one thread per element.
template <class T, bool kBackward>
__global__ void DirectGather(ConvGeometry g, size_t count, const T* from, const T* w, bool adds,
                             T* to) {
  const SampleShape source = kBackward ? g.out : g.in, result = kBackward ? g.in : g.out;
  const uint32_t group_in = g.in.channels / g.spec.groups,
                 group_source = source.channels / g.spec.groups,
                 group_result = result.channels / g.spec.groups;
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = ThreadIndex(); i < count; i += step) {
    const auto channel = static_cast<uint32_t>(i % result.channels);
    const size_t pixel = i / result.channels, row = pixel / result.width;
    const auto x = static_cast<uint32_t>(pixel % result.width);
    const auto y = static_cast<uint32_t>(row % result.height);
    const uint32_t first = channel / group_result * group_source;
    float sum = adds ? ToFloat(to[i]) : 0.0f;
    for (uint32_t ky = 0; ky < g.spec.kernel; ++ky) {
      for (uint32_t kx = 0; kx < g.spec.kernel; ++kx) {
        const uint32_t source_y = FindSource<kBackward>(g, y, ky);
        const uint32_t source_x = FindSource<kBackward>(g, x, kx);
        if (source_y >= source.height || source_x >= source.width) continue;
        const size_t sample = row / result.height;
        const T* values = from + ((sample * source.height + source_y) * source.width + source_x) *
                                     source.channels;
        for (uint32_t c = first; c < first + group_source; ++c) {
          const uint32_t out = kBackward ? c : channel, in = kBackward ? channel : c;
          const size_t weight =
              ((size_t{out} * g.spec.kernel + ky) * g.spec.kernel + kx) * group_in + in % group_in;
          sum += ToFloat(values[c]) * ToFloat(w[weight]);
        }
      }
    }
    to[i] = FromFloat<T>(sum);
  }
}

// Returns the number of threads per weight: a power of two, above 1 if there are few weights. It
// follows from the shape alone, and so does the order of the additions.
uint32_t WeightLanes(const Conv2dSpec& spec) {
  constexpr uint32_t kThreadsWanted = 1 << 12;
  uint32_t lanes = 1;
  while (2 * lanes <= kMapThreads && 2 * lanes * spec.weight_size() <= kThreadsWanted) lanes *= 2;
  return lanes;
}

// Each thread sums every lanes-th row of the result, in fp64, and a weight's threads add as a tree.
template <class T>
__global__ void WeightGradient(ConvGeometry g, uint32_t sample_count, uint32_t lanes, const T* x,
                               const T* dy, T* dw) {
  const uint32_t taps = g.spec.kernel * g.spec.kernel;
  const uint32_t group_in = g.in.channels / g.spec.groups,
                 group_out = g.out.channels / g.spec.groups;
  const uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) / lanes, lane = threadIdx.x % lanes;
  const bool has_weight = i < g.out.channels * taps * group_in;
  const uint32_t tap = i / group_in % taps, out = i / group_in / taps;
  const uint32_t channel = out / group_out * group_in + i % group_in;
  const uint32_t row_count = has_weight ? sample_count * g.out.height : 0;
  double sum = 0;
  for (uint32_t row = lane; row < row_count; row += lanes) {
    const uint32_t in_y = FindSource<false>(g, row % g.out.height, tap / g.spec.kernel);
    if (in_y >= g.in.height) continue;
    for (uint32_t out_x = 0; out_x < g.out.width; ++out_x) {
      const uint32_t in_x = FindSource<false>(g, out_x, tap % g.spec.kernel);
      if (in_x >= g.in.width) continue;
      const size_t from = (size_t{row / g.out.height} * g.in.height + in_y) * g.in.width + in_x;
      const size_t to = size_t{row} * g.out.width + out_x;
      sum += ToFloat(x[from * g.in.channels + channel]) * ToFloat(dy[to * g.out.channels + out]);
    }
  }
  __shared__ double sums[kMapThreads];
  for (uint32_t half = lanes / 2; half > 0; half /= 2) {
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (lane < half) sum += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (has_weight && lane == 0) dw[i] = FromFloat<T>(static_cast<float>(sum));
}

template <class T>
void Convolve(CudaDevice& gpu, const ConvProblem& problem, const ConvArrays& arrays) {
  const ConvGeometry g(problem.spec);
  const size_t in = g.in.size() * problem.sample_count, out = g.out.size() * problem.sample_count;
  const dim3 threads(kMapThreads);
  switch (problem.pass) {
    case ConvPass::kForward:
      return Launch(gpu, GridSize(gpu, out, 1), threads, DirectGather<T, false>, g, out, arrays.x,
                    arrays.w, problem.adds, arrays.y);
    case ConvPass::kDataGradient:
      return Launch(gpu, GridSize(gpu, in, 1), threads, DirectGather<T, true>, g, in, arrays.y,
                    arrays.w, problem.adds, arrays.x);
    case ConvPass::kWeightGradient: {
      const uint32_t lanes = WeightLanes(problem.spec);
      const auto count = CheckedCast<uint32_t>(problem.spec.weight_size() * lanes);
      return Launch(gpu, dim3(DivideUp(count, kMapThreads)), threads, WeightGradient<T>, g,
                    problem.sample_count, lanes, arrays.x, arrays.y, arrays.w);
    }
  }
}

}  // namespace

void DirectConvolve(CudaDevice& gpu, const ConvProblem& problem, const ConvArrays& arrays) {
  WithElement(gpu.element(), [&]<class T>() { Convolve<T>(gpu, problem, arrays); });
}

}  // namespace pando::cuda
