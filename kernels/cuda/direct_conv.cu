#include "kernels/cuda/direct_conv.h"

#include "kernels/cuda/element.h"
#include "kernels/cuda/map.h"

namespace pando::cuda {
namespace {

struct Geometry {
  uint32_t samples;
  uint32_t in_height, in_width, in_channels;
  uint32_t out_height, out_width, out_channels;
  uint32_t kernel, stride, padding;
  uint32_t group_in, group_out;  // channels of a group
};

Geometry MakeGeometry(const ConvProblem& p) {
  const auto side = [&](uint32_t in) { return (in + 2 * p.padding - p.kernel) / p.stride + 1; };
  return {p.sample_count,
          p.input.height,
          p.input.width,
          p.input.channels,
          side(p.input.height),
          side(p.input.width),
          p.out_channels,
          p.kernel,
          p.stride,
          p.padding,
          p.input.channels / p.groups,
          p.out_channels / p.groups};
}

template <class T>
__global__ void Forward(Geometry g, const T* x, const T* w, T* y) {
  const size_t count = size_t{g.samples} * g.out_height * g.out_width * g.out_channels;
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = ThreadIndex(); i < count; i += step) {
    const auto out = static_cast<uint32_t>(i % g.out_channels);
    const size_t pixel = i / g.out_channels, row = pixel / g.out_width;
    const auto out_x = static_cast<uint32_t>(pixel % g.out_width);
    const auto out_y = static_cast<uint32_t>(row % g.out_height);
    const uint32_t first = out / g.group_out * g.group_in;
    float sum = 0;
    for (uint32_t ky = 0; ky < g.kernel; ++ky) {
      for (uint32_t kx = 0; kx < g.kernel; ++kx) {
        const uint32_t in_y = out_y * g.stride + ky - g.padding;  // wraps where outside
        const uint32_t in_x = out_x * g.stride + kx - g.padding;
        if (in_y >= g.in_height || in_x >= g.in_width) continue;
        const T* from =
            x + ((row / g.out_height * g.in_height + in_y) * g.in_width + in_x) * g.in_channels +
            first;
        const T* weights = w + ((size_t{out} * g.kernel + ky) * g.kernel + kx) * g.group_in;
        for (uint32_t c = 0; c < g.group_in; ++c) sum += ToFloat(from[c]) * ToFloat(weights[c]);
      }
    }
    y[i] = FromFloat<T>(sum);
  }
}

template <class T>
__global__ void DataGradient(Geometry g, const T* dy, const T* w, T* dx) {
  const size_t count = size_t{g.samples} * g.in_height * g.in_width * g.in_channels;
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = ThreadIndex(); i < count; i += step) {
    const auto channel = static_cast<uint32_t>(i % g.in_channels);
    const size_t pixel = i / g.in_channels, row = pixel / g.in_width;
    const auto in_x = static_cast<uint32_t>(pixel % g.in_width);
    const auto in_y = static_cast<uint32_t>(row % g.in_height);
    const uint32_t first = channel / g.group_in * g.group_out;
    float sum = 0;
    for (uint32_t ky = 0; ky < g.kernel; ++ky) {
      for (uint32_t kx = 0; kx < g.kernel; ++kx) {
        const uint32_t from_y = in_y + g.padding - ky;  // wraps outside; the next one too
        const uint32_t from_x = in_x + g.padding - kx;
        if (from_y % g.stride != 0 || from_y / g.stride >= g.out_height) continue;
        if (from_x % g.stride != 0 || from_x / g.stride >= g.out_width) continue;
        const T* from = dy + ((row / g.in_height * g.out_height + from_y / g.stride) * g.out_width +
                              from_x / g.stride) *
                                 g.out_channels;
        for (uint32_t o = first; o < first + g.group_out; ++o) {
          const size_t weight =
              ((size_t{o} * g.kernel + ky) * g.kernel + kx) * g.group_in + channel % g.group_in;
          sum += ToFloat(from[o]) * ToFloat(w[weight]);
        }
      }
    }
    dx[i] = FromFloat<T>(sum);
  }
}

// One thread per weight. fp64: the sum over all pixels of all samples is one chain.
template <class T>
__global__ void WeightGradient(Geometry g, const T* x, const T* dy, T* dw) {
  const uint32_t taps = g.kernel * g.kernel;
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= g.out_channels * taps * g.group_in) return;
  const uint32_t tap = i / g.group_in % taps, out = i / g.group_in / taps;
  const uint32_t channel = out / g.group_out * g.group_in + i % g.group_in;
  double sum = 0;
  for (uint32_t row = 0; row < g.samples * g.out_height; ++row) {
    const uint32_t in_y = row % g.out_height * g.stride + tap / g.kernel - g.padding;
    if (in_y >= g.in_height) continue;  // wrapped: outside; the next one too
    for (uint32_t out_x = 0; out_x < g.out_width; ++out_x) {
      const uint32_t in_x = out_x * g.stride + tap % g.kernel - g.padding;
      if (in_x >= g.in_width) continue;
      const size_t from = (size_t{row / g.out_height} * g.in_height + in_y) * g.in_width + in_x;
      const size_t to = size_t{row} * g.out_width + out_x;
      sum += ToFloat(x[from * g.in_channels + channel]) * ToFloat(dy[to * g.out_channels + out]);
    }
  }
  dw[i] = FromFloat<T>(static_cast<float>(sum));
}

template <class T>
void Convolve(CudaDevice& gpu, const Geometry& g, ConvPass pass, T* x, T* w, T* y) {
  const size_t in = size_t{g.samples} * g.in_height * g.in_width * g.in_channels;
  const size_t out = size_t{g.samples} * g.out_height * g.out_width * g.out_channels;
  const uint32_t weights = g.out_channels * g.kernel * g.kernel * g.group_in;
  switch (pass) {
    case ConvPass::kForward:
      return Launch(gpu, GridSize(gpu, out, 1), dim3(kMapThreads), Forward<T>, g, x, w, y);
    case ConvPass::kDataGradient:
      return Launch(gpu, GridSize(gpu, in, 1), dim3(kMapThreads), DataGradient<T>, g, y, w, x);
    case ConvPass::kWeightGradient:
      return Launch(gpu, dim3(DivideUp(weights, kMapThreads)), dim3(kMapThreads), WeightGradient<T>,
                    g, x, y, w);
  }
}

}  // namespace

void DirectConvolve(CudaDevice& gpu, const ConvProblem& problem, const ConvArrays& arrays) {
  WithElement(gpu.element(), [&]<class T>() {
    Convolve(gpu, MakeGeometry(problem), problem.pass, static_cast<T*>(arrays.x),
             static_cast<T*>(arrays.w), static_cast<T*>(arrays.y));
  });
}

}  // namespace pando::cuda
