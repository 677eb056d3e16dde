// Batch normalisation on the GPU, with the addition and the activation that follow it. An array is
// pixels times channels. Training reads x twice and writes y once: sums of the deviations from each
// channel's first value (so a large mean costs the variance no digits), then the result.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/map.h"
#include "kernels/cuda/reduce.h"

namespace pando::cuda {
namespace {

struct Scratch {
  float* slope;  // [channels]; in inference the inverse deviations
  float* offset;
  float* run_sums;
};

Scratch Carve(const BatchNormSpec& spec, std::span<std::byte> scratch) {
  auto* floats = reinterpret_cast<float*>(scratch.data());
  const size_t row = (spec.shape.channels + 15) / 16 * 16;
  return {floats, floats + row, floats + 2 * row};
}

size_t PixelCount(const BatchNormSpec& spec, uint32_t sample_count) {
  return size_t{sample_count} * spec.shape.height * spec.shape.width;
}

// ------------------------------------------------------------------------------------- statistics

// Sums of deviations from the channel's first value, and of their squares.
template <class T, int kWidth>
struct Deviations {
  const T* x;
  uint32_t channels;
  float center[kWidth] = {};

  __device__ void Begin(uint32_t channel) {
    x += channel;
    LoadFloats<kWidth>(x, center);
  }
  __device__ void Add(size_t pixel, float (&sums)[2][kWidth]) const {
    float values[kWidth];
    LoadFloats<kWidth>(x + pixel * channels, values);
    for (int i = 0; i < kWidth; ++i) {
      const float deviation = values[i] - center[i];
      sums[0][i] += deviation;
      sums[1][i] += deviation * deviation;
    }
  }
};

template <class T>
struct FinishStatistics {
  BatchNormForwardArgsOf<T> args;
  double pixels;
  double eps;

  __device__ void operator()(uint32_t c, const double (&totals)[2]) const {
    const double from_center = totals[0] / pixels;
    const double rounded = totals[1] - totals[0] * from_center;
    const double squares = rounded < 0.0 ? 0.0 : rounded;  // NaN stays
    args.mean[c] = static_cast<float>(ToFloat(args.x[c]) + from_center);
    args.inverse_std[c] = static_cast<float>(1.0 / sqrt(squares / pixels + eps));
    args.variance[c] = pixels == 1.0 ? 0.0f : static_cast<float>(squares / (pixels - 1.0));
  }
};

__global__ void InvertDeviations(uint32_t channels, double eps, const float* variance,
                                 float* inverse_std) {
  const uint32_t c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c < channels) inverse_std[c] = static_cast<float>(1.0 / sqrt(variance[c] + eps));
}

// -------------------------------------------------------------------------------------- the result

// Calls f with the position of the thread's channels in each of its pixels.
template <class F>
__device__ void ForPixels(const ColumnShape& shape, uint32_t channel, F f) {
  const size_t step = size_t{gridDim.x} * blockDim.y;
  for (size_t pixel = size_t{blockIdx.x} * blockDim.y + threadIdx.y; pixel < shape.pixels;
       pixel += step) {
    f(pixel * shape.channels + channel);
  }
}

// The factors of a thread's channels. Backward computes forward's results again with the same bits,
// so fmaf decides where to round, not the compiler.
template <int kWidth>
struct Normaliser {
  float mean[kWidth], factor[kWidth], offset[kWidth];

  template <class Args>  // its parameters may begin at any float
  __device__ void Begin(const Args& args, const float* inverse_std, uint32_t channel) {
    for (int i = 0; i < kWidth; ++i) {
      mean[i] = args.mean[channel + i];
      factor[i] = inverse_std[channel + i] * args.weight[channel + i];
      offset[i] = fmaf(-mean[i], factor[i], args.bias[channel + i]);
    }
  }
  __device__ float operator()(int i, float x) const { return fmaf(x, factor[i], offset[i]); }
};

// y = activation((x − mean) · inverse_std · weight + bias + residual)
template <int kWidth, class Args>
__global__ void Normalise(ColumnShape shape, Activation activation, const float* inverse_std,
                          Args args) {
  const uint32_t channel = ThreadChannel<kWidth>();
  if (channel >= shape.channels) return;
  Normaliser<kWidth> normalised;
  normalised.Begin(args, inverse_std, channel);
  ForPixels(shape, channel, [&](size_t at) {
    float values[kWidth], others[kWidth] = {};
    LoadFloats<kWidth>(args.x + at, values);
    if (args.residual != nullptr) LoadFloats<kWidth>(args.residual + at, others);
    for (int i = 0; i < kWidth; ++i) {
      values[i] = Activate(activation, normalised(i, values[i]) + others[i]);
    }
    StoreFloats<kWidth>(values, args.y + at);
  });
}

// Gives every thread enough pixels to pay for its factors.
ColumnShape PlanResult(CudaDevice& gpu, size_t pixels, uint32_t channels, int width) {
  constexpr uint32_t kBlocksPerMultiprocessor = 16;
  return PlanColumns(pixels, channels, width,
                     kBlocksPerMultiprocessor * gpu.multiprocessor_count());
}

template <class Args>
void LaunchNormalise(CudaDevice& gpu, const BatchNormSpec& spec, const Args& args,
                     const float* inverse_std) {
  WithPacks(gpu.element(), spec.shape.channels, [&]<class T, int kWidth>() {
    const ColumnShape shape =
        PlanResult(gpu, PixelCount(spec, args.sample_count), spec.shape.channels, kWidth);
    const auto typed = Typed<T>(args);
    Launch(gpu, shape.grid_size, shape.block_size, Normalise<kWidth, std::decay_t<decltype(typed)>>,
           shape, spec.activation, inverse_std, typed);
  });
}

// ---------------------------------------------------------------------------------------- backward

// Sums of the gradients that the activation passes, and of their products with the deviations. If
// the caller needs these gradients anyway, as the residual's, the first kernel writes them, and the
// second one reads only them, instead of dy and y again. kFromX: y depends on x alone, and is
// computed again instead of read.
template <class T, int kWidth, bool kFromX>
struct Gradients {
  BatchNormBackwardArgsOf<T> args;
  Activation activation;
  uint32_t channels;
  uint32_t channel = 0;
  Normaliser<kWidth> normalised = {};

  __device__ void Begin(uint32_t first_channel) {
    channel = first_channel;
    normalised.Begin(args, args.inverse_std, channel);
  }
  __device__ void Load(size_t at, float (&values)[kWidth], float (&gradients)[kWidth]) const {
    LoadFloats<kWidth>(args.x + at, values);
    LoadFloats<kWidth>(args.dy + at, gradients);
    if (activation == Activation::kNone) return;
    float results[kWidth];
    if constexpr (!kFromX) LoadFloats<kWidth>(args.y + at, results);
    for (int i = 0; i < kWidth; ++i) {
      if constexpr (kFromX)  // rounded like y: to 0, and to 6
        results[i] = ToFloat(FromFloat<T>(Activate(activation, normalised(i, values[i]))));
      gradients[i] = PassGradient(activation, results[i], gradients[i]);
    }
  }
  __device__ void Add(size_t pixel, float (&sums)[2][kWidth]) const {
    float values[kWidth], gradients[kWidth];
    const size_t at = pixel * channels + channel;
    Load(at, values, gradients);
    if (!kFromX && args.dresidual != nullptr) StoreFloats<kWidth>(gradients, args.dresidual + at);
    for (int i = 0; i < kWidth; ++i) {
      sums[0][i] += gradients[i];
      sums[1][i] += gradients[i] * (values[i] - normalised.mean[i]);
    }
  }
};

// dx = weight · inverse_std · (dy − dbias / n − (x − mean) · inverse_std · dweight / n)
struct FinishGradients {
  BatchNormBackwardArgs args;
  double pixels;
  Scratch scratch;

  __device__ void operator()(uint32_t c, const double (&totals)[2]) const {
    const double deviation = args.inverse_std[c], factor = args.weight[c] * deviation;
    args.dbias[c] = static_cast<float>(totals[0]);
    args.dweight[c] = static_cast<float>(totals[1] * deviation);
    scratch.slope[c] = static_cast<float>(-factor * deviation * deviation * totals[1] / pixels);
    scratch.offset[c] = static_cast<float>(-factor * totals[0] / pixels);
  }
};

template <class T, int kWidth, bool kFromX>
__global__ void __launch_bounds__(kColumnThreads, kColumnBlocks)
    DataGradients(ColumnShape shape, Scratch scratch, Gradients<T, kWidth, kFromX> in) {
  const uint32_t channel = ThreadChannel<kWidth>();
  if (channel >= shape.channels) return;
  float offset[kWidth], slope[kWidth];
  LoadFloats<kWidth>(scratch.offset + channel, offset);
  LoadFloats<kWidth>(scratch.slope + channel, slope);
  in.Begin(channel);
  ForPixels(shape, channel, [&](size_t at) {
    float values[kWidth], gradients[kWidth];
    in.Load(at, values, gradients);
    for (int i = 0; i < kWidth; ++i) {
      values[i] = gradients[i] * in.normalised.factor[i] +
                  ((values[i] - in.normalised.mean[i]) * slope[i] + offset[i]);
    }
    StoreFloats<kWidth>(values, in.args.dx + at);
  });
}

}  // namespace

// If a pack does not divide the channels, the width is 1, and fewer runs need less scratch.
size_t BatchNormScratchBytes(CudaDevice&, const BatchNormSpec& spec) {
  const uint32_t channels = spec.shape.channels;
  const size_t rows = 2 * ((size_t{channels} + 15) / 16 * 16) * sizeof(float);
  return rows + RunSumsBytes(channels, kPackWidth<Bfloat16>, 2);
}

void BatchNormForward(CudaDevice& gpu, const BatchNormSpec& spec, const BatchNormForwardArgs& args,
                      std::span<std::byte> scratch_bytes) {
  const Scratch scratch = Carve(spec, scratch_bytes);
  const size_t pixels = PixelCount(spec, args.sample_count);
  const uint32_t channels = spec.shape.channels;
  WithPacks(gpu.element(), channels, [&]<class T, int kWidth>() {
    const BatchNormForwardArgsOf<T> typed = Typed<T>(args);
    SumColumns<2, kWidth>(gpu, pixels, channels, Deviations<T, kWidth>{typed.x, channels},
                          FinishStatistics<T>{typed, static_cast<double>(pixels), spec.eps},
                          scratch.run_sums);
  });
  LaunchNormalise(gpu, spec, args, args.inverse_std);
}

void BatchNormInference(CudaDevice& gpu, const BatchNormSpec& spec,
                        const BatchNormInferenceArgs& args, std::span<std::byte> scratch_bytes) {
  const Scratch scratch = Carve(spec, scratch_bytes);
  Launch(gpu, dim3(DivideUp(spec.shape.channels, kMapThreads)), dim3(kMapThreads), InvertDeviations,
         spec.shape.channels, spec.eps, args.variance, scratch.slope);
  LaunchNormalise(gpu, spec, args, scratch.slope);
}

void BatchNormBackward(CudaDevice& gpu, const BatchNormSpec& spec,
                       const BatchNormBackwardArgs& args, std::span<std::byte> scratch_bytes) {
  const Scratch scratch = Carve(spec, scratch_bytes);
  const size_t pixels = PixelCount(spec, args.sample_count);
  const uint32_t channels = spec.shape.channels;
  const auto launch = [&]<class T, int kWidth, bool kFromX>() {
    Gradients<T, kWidth, kFromX> gradients{Typed<T>(args), spec.activation, channels};
    SumColumns<2, kWidth>(gpu, pixels, channels, gradients,
                          FinishGradients{args, static_cast<double>(pixels), scratch},
                          scratch.run_sums);
    if (args.dx == nullptr) return;
    if (args.dresidual != nullptr) {
      gradients.args.dy = gradients.args.dresidual;
      gradients.activation = Activation::kNone;
    }
    const ColumnShape shape = PlanResult(gpu, pixels, channels, kWidth);
    Launch(gpu, shape.grid_size, shape.block_size, DataGradients<T, kWidth, kFromX>, shape, scratch,
           gradients);
  };
  WithPacks(gpu.element(), channels, [&]<class T, int kWidth>() {
    spec.has_residual ? launch.template operator()<T, kWidth, false>()
                      : launch.template operator()<T, kWidth, true>();
  });
}

}  // namespace pando::cuda
