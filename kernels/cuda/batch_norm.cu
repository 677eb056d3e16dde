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
  float* factor;  // [channels] each
  float* offset;
  float* slope;
  float* run_sums;
};

Scratch Carve(const BatchNormSpec& spec, std::span<std::byte> scratch) {
  auto* floats = reinterpret_cast<float*>(scratch.data());
  const size_t row = (spec.shape.channels + 15) / 16 * 16;
  return {floats, floats + row, floats + 2 * row, floats + 3 * row};
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
  Scratch scratch;

  __device__ void operator()(uint32_t c, const double (&totals)[2]) const {
    const double from_center = totals[0] / pixels;
    const double exact_mean = ToFloat(args.x[c]) + from_center;
    const double rounded = totals[1] - totals[0] * from_center;
    const double squares = rounded < 0.0 ? 0.0 : rounded;  // NaN stays
    const double exact_inverse_std = 1.0 / sqrt(squares / pixels + eps);
    const double factor = exact_inverse_std * args.weight[c];
    args.mean[c] = static_cast<float>(exact_mean);
    args.inverse_std[c] = static_cast<float>(exact_inverse_std);
    args.variance[c] = pixels == 1.0 ? 0.0f : static_cast<float>(squares / (pixels - 1.0));
    scratch.factor[c] = static_cast<float>(factor);
    scratch.offset[c] = static_cast<float>(args.bias[c] - exact_mean * factor);
  }
};

__global__ void FactorsOfGivenStatistics(uint32_t channels, double eps, BatchNormInferenceArgs args,
                                         Scratch scratch) {
  const uint32_t c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= channels) return;
  const double factor = args.weight[c] / sqrt(args.variance[c] + eps);
  scratch.factor[c] = static_cast<float>(factor);
  scratch.offset[c] = static_cast<float>(args.bias[c] - args.mean[c] * factor);
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

// y = activation(x · factor + offset + residual)
template <class T, int kWidth>
__global__ void Normalise(ColumnShape shape, Scratch scratch, const T* x, const T* residual,
                          Activation activation, T* y) {
  const uint32_t channel = ThreadChannel<kWidth>();
  if (channel >= shape.channels) return;
  float factor[kWidth], offset[kWidth];
  LoadFloats<kWidth>(scratch.factor + channel, factor);
  LoadFloats<kWidth>(scratch.offset + channel, offset);
  ForPixels(shape, channel, [&](size_t at) {
    float values[kWidth], others[kWidth] = {};
    LoadFloats<kWidth>(x + at, values);
    if (residual != nullptr) LoadFloats<kWidth>(residual + at, others);
    for (int i = 0; i < kWidth; ++i) {
      values[i] = Activate(activation, values[i] * factor[i] + offset[i] + others[i]);
    }
    StoreFloats<kWidth>(values, y + at);
  });
}

// Every thread has pixels enough to pay for its factors.
ColumnShape PlanResult(CudaDevice& gpu, size_t pixels, uint32_t channels, int width) {
  constexpr uint32_t kBlocksPerMultiprocessor = 16;
  return PlanColumns(pixels, channels, width,
                     kBlocksPerMultiprocessor * gpu.multiprocessor_count());
}

template <class Args>
void LaunchNormalise(CudaDevice& gpu, const BatchNormSpec& spec, const Args& args,
                     const Scratch& scratch) {
  WithPacks(gpu.element(), spec.shape.channels, [&]<class T, int kWidth>() {
    const ColumnShape shape =
        PlanResult(gpu, PixelCount(spec, args.sample_count), spec.shape.channels, kWidth);
    Launch(gpu, shape.grid_size, shape.block_size, Normalise<T, kWidth>, shape, scratch, args.x,
           args.residual, spec.activation, args.y);
  });
}

// ---------------------------------------------------------------------------------------- backward

// Sums of the gradients that the activation let through, and of their products with the deviations.
// Where these gradients are asked for anyway, as the residual's, the first kernel writes them, and
// the second reads them alone, instead of dy and y again.
template <class T, int kWidth>
struct Gradients {
  BatchNormBackwardArgsOf<T> args;
  Activation activation;
  uint32_t channels;
  uint32_t channel = 0;
  float mean[kWidth] = {};

  __device__ void Begin(uint32_t first_channel) {
    channel = first_channel;
    LoadFloats<kWidth>(args.mean + channel, mean);
  }
  __device__ void Load(size_t at, float (&values)[kWidth], float (&gradients)[kWidth]) const {
    float results[kWidth] = {};
    LoadFloats<kWidth>(args.x + at, values);
    LoadFloats<kWidth>(args.dy + at, gradients);
    if (activation != Activation::kNone) LoadFloats<kWidth>(args.y + at, results);
    for (int i = 0; i < kWidth; ++i) {
      gradients[i] = PassGradient(activation, results[i], gradients[i]);
    }
  }
  __device__ void Add(size_t pixel, float (&sums)[2][kWidth]) const {
    float values[kWidth], gradients[kWidth];
    const size_t at = pixel * channels + channel;
    Load(at, values, gradients);
    if (args.dresidual != nullptr) StoreFloats<kWidth>(gradients, args.dresidual + at);
    for (int i = 0; i < kWidth; ++i) {
      sums[0][i] += gradients[i];
      sums[1][i] += gradients[i] * (values[i] - mean[i]);
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
    scratch.factor[c] = static_cast<float>(factor);
    scratch.slope[c] = static_cast<float>(-factor * deviation * deviation * totals[1] / pixels);
    scratch.offset[c] = static_cast<float>(-factor * totals[0] / pixels);
  }
};

template <class T, int kWidth>
__global__ void DataGradients(ColumnShape shape, Scratch scratch, Gradients<T, kWidth> in) {
  const uint32_t channel = ThreadChannel<kWidth>();
  if (channel >= shape.channels) return;
  float factor[kWidth], offset[kWidth], slope[kWidth];
  LoadFloats<kWidth>(scratch.factor + channel, factor);
  LoadFloats<kWidth>(scratch.offset + channel, offset);
  LoadFloats<kWidth>(scratch.slope + channel, slope);
  in.Begin(channel);
  ForPixels(shape, channel, [&](size_t at) {
    float values[kWidth], gradients[kWidth];
    in.Load(at, values, gradients);
    for (int i = 0; i < kWidth; ++i) {
      values[i] = gradients[i] * factor[i] + ((values[i] - in.mean[i]) * slope[i] + offset[i]);
    }
    StoreFloats<kWidth>(values, in.args.dx + at);
  });
}

}  // namespace

// The width is 1 where a pack does not divide the channels: then fewer runs.
size_t BatchNormScratchBytes(CudaDevice&, const BatchNormSpec& spec) {
  const uint32_t channels = spec.shape.channels;
  const size_t rows = 3 * ((size_t{channels} + 15) / 16 * 16) * sizeof(float);
  return rows + RunSumsBytes(channels, kPackWidth<Bfloat16>, 2);
}

void BatchNormForward(CudaDevice& gpu, const BatchNormSpec& spec, const BatchNormForwardArgs& args,
                      std::span<std::byte> scratch_bytes) {
  const Scratch scratch = Carve(spec, scratch_bytes);
  const size_t pixels = PixelCount(spec, args.sample_count);
  const uint32_t channels = spec.shape.channels;
  WithPacks(gpu.element(), channels, [&]<class T, int kWidth>() {
    const BatchNormForwardArgsOf<T> typed = Typed<T>(args);
    SumColumns<2, kWidth>(
        gpu, pixels, channels, Deviations<T, kWidth>{typed.x, channels},
        FinishStatistics<T>{typed, static_cast<double>(pixels), spec.eps, scratch},
        scratch.run_sums);
  });
  LaunchNormalise(gpu, spec, args, scratch);
}

void BatchNormInference(CudaDevice& gpu, const BatchNormSpec& spec,
                        const BatchNormInferenceArgs& args, std::span<std::byte> scratch_bytes) {
  const Scratch scratch = Carve(spec, scratch_bytes);
  Launch(gpu, dim3(DivideUp(spec.shape.channels, kMapThreads)), dim3(kMapThreads),
         FactorsOfGivenStatistics, spec.shape.channels, spec.eps, args, scratch);
  LaunchNormalise(gpu, spec, args, scratch);
}

void BatchNormBackward(CudaDevice& gpu, const BatchNormSpec& spec,
                       const BatchNormBackwardArgs& args, std::span<std::byte> scratch_bytes) {
  const Scratch scratch = Carve(spec, scratch_bytes);
  const size_t pixels = PixelCount(spec, args.sample_count);
  const uint32_t channels = spec.shape.channels;
  WithPacks(gpu.element(), channels, [&]<class T, int kWidth>() {
    Gradients<T, kWidth> gradients{Typed<T>(args), spec.activation, channels};
    SumColumns<2, kWidth>(gpu, pixels, channels, gradients,
                          FinishGradients{args, static_cast<double>(pixels), scratch},
                          scratch.run_sums);
    if (args.dx == nullptr) return;
    if (args.dresidual != nullptr) {
      gradients.args.dy = gradients.args.dresidual;
      gradients.activation = Activation::kNone;
    }
    const ColumnShape shape = PlanResult(gpu, pixels, channels, kWidth);
    Launch(gpu, shape.grid_size, shape.block_size, DataGradients<T, kWidth>, shape, scratch,
           gradients);
  });
}

}  // namespace pando::cuda
