#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/map.h"
#include "kernels/cuda/own_conv.h"

namespace pando::cuda {
namespace {

// One thread per element of the result.
template <class T, bool kBackward>
__global__ void Gather(ConvGeometry g, size_t count, const T* from, const T* w, T* to) {
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
    float sum = 0;
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

// One thread per weight. fp64: the sum over all pixels of all samples is one chain.
template <class T>
__global__ void WeightGradient(ConvGeometry g, uint32_t sample_count, const T* x, const T* dy,
                               T* dw) {
  const uint32_t taps = g.spec.kernel * g.spec.kernel;
  const uint32_t group_in = g.in.channels / g.spec.groups,
                 group_out = g.out.channels / g.spec.groups;
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= g.out.channels * taps * group_in) return;
  const uint32_t tap = i / group_in % taps, out = i / group_in / taps;
  const uint32_t channel = out / group_out * group_in + i % group_in;
  double sum = 0;
  for (uint32_t row = 0; row < sample_count * g.out.height; ++row) {
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
  dw[i] = FromFloat<T>(static_cast<float>(sum));
}

template <class T>
void Convolve(CudaDevice& gpu, const ConvProblem& problem, const ConvArrays& arrays) {
  const ConvGeometry g(problem.spec);
  const size_t in = g.in.size() * problem.sample_count, out = g.out.size() * problem.sample_count;
  const dim3 threads(kMapThreads);
  switch (problem.pass) {
    case ConvPass::kForward:
      return Launch(gpu, GridSize(gpu, out, 1), threads, Gather<T, false>, g, out, arrays.x,
                    arrays.w, arrays.y);
    case ConvPass::kDataGradient:
      return Launch(gpu, GridSize(gpu, in, 1), threads, Gather<T, true>, g, in, arrays.y, arrays.w,
                    arrays.x);
    case ConvPass::kWeightGradient:
      return Launch(gpu, dim3(DivideUp(problem.spec.weight_size(), kMapThreads)), threads,
                    WeightGradient<T>, g, problem.sample_count, arrays.x, arrays.y, arrays.w);
  }
}

}  // namespace

void DirectConvolve(CudaDevice& gpu, const ConvProblem& problem, const ConvArrays& arrays) {
  WithElement(gpu.element(), [&]<class T>() { Convolve<T>(gpu, problem, arrays); });
}

}  // namespace pando::cuda
