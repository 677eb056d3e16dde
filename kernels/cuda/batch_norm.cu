// Batch normalisation on the GPU, with the addition and the activation that follow it. An array is
// pixels times channels. Training reads x twice and writes y once: sums of the deviations from each
// channel's first value (so a large mean costs the variance no digits), then the result.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/element.h"
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

  struct Terms {
    const T* x;
    uint32_t channels;
    float center[kWidth];
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
  __device__ Terms Begin(uint32_t channel) const {
    Terms terms{x + channel, channels, {}};
    LoadFloats<kWidth>(x + channel, terms.center);
    return terms;
  }
};

template <class T>
struct FinishStatistics {
  const T* x;
  double pixels;
  double eps;
  const float* weight;
  const float* bias;
  float* mean;
  float* inverse_std;
  float* variance;
  Scratch scratch;

  __device__ void operator()(uint32_t c, const double (&totals)[2]) const {
    const double from_center = totals[0] / pixels;
    const double exact_mean = ToFloat(x[c]) + from_center;
    const double rounded = totals[1] - totals[0] * from_center;
    const double squares = rounded < 0.0 ? 0.0 : rounded;  // NaN stays
    const double exact_inverse_std = 1.0 / sqrt(squares / pixels + eps);
    const double factor = exact_inverse_std * weight[c];
    mean[c] = static_cast<float>(exact_mean);
    inverse_std[c] = static_cast<float>(exact_inverse_std);
    variance[c] = pixels == 1.0 ? 0.0f : static_cast<float>(squares / (pixels - 1.0));
    scratch.factor[c] = static_cast<float>(factor);
    scratch.offset[c] = static_cast<float>(bias[c] - exact_mean * factor);
  }
};

__global__ void FactorsOfGivenStatistics(uint32_t channels, double eps, const float* weight,
                                         const float* bias, const float* mean,
                                         const float* variance, Scratch scratch) {
  const uint32_t c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= channels) return;
  const double factor = weight[c] / sqrt(variance[c] + eps);
  scratch.factor[c] = static_cast<float>(factor);
  scratch.offset[c] = static_cast<float>(bias[c] - mean[c] * factor);
}

// -------------------------------------------------------------------------------------- the result

// y = activation(x · factor + offset + residual)
template <class T, int kWidth>
__global__ void Normalise(ColumnShape shape, Scratch scratch, const T* x, const T* residual,
                          Activation activation, T* y) {
  const uint32_t channel = (blockIdx.y * blockDim.x + threadIdx.x) * kWidth;
  if (channel >= shape.channels) return;
  float factor[kWidth], offset[kWidth];
  LoadFloats<kWidth>(scratch.factor + channel, factor);
  LoadFloats<kWidth>(scratch.offset + channel, offset);
  const size_t step = size_t{gridDim.x} * blockDim.y;
  for (size_t pixel = size_t{blockIdx.x} * blockDim.y + threadIdx.y; pixel < shape.pixels;
       pixel += step) {
    const size_t at = pixel * shape.channels + channel;
    float values[kWidth], others[kWidth] = {};
    LoadFloats<kWidth>(x + at, values);
    if (residual != nullptr) LoadFloats<kWidth>(residual + at, others);
    for (int i = 0; i < kWidth; ++i) {
      values[i] = Activate(activation, values[i] * factor[i] + offset[i] + others[i]);
    }
    StoreFloats<kWidth>(values, y + at);
  }
}

// Every thread has pixels enough to pay for its factors.
ColumnShape PlanResult(CudaDevice& gpu, size_t pixels, uint32_t channels, int width) {
  constexpr uint32_t kBlocksPerMultiprocessor = 16;
  return PlanColumns(pixels, channels, width,
                     kBlocksPerMultiprocessor * gpu.multiprocessor_count());
}

template <class T>
void LaunchNormalise(CudaDevice& gpu, const BatchNormSpec& spec, size_t pixels,
                     const Scratch& scratch, const void* x, const void* residual, void* y) {
  WithWidth<T>(spec.shape.channels, [&]<int kWidth>() {
    const ColumnShape shape = PlanResult(gpu, pixels, spec.shape.channels, kWidth);
    Launch(gpu, shape.grid_size, shape.block_size, Normalise<T, kWidth>, shape, scratch,
           static_cast<const T*>(x), static_cast<const T*>(residual), spec.activation,
           static_cast<T*>(y));
  });
}

// ---------------------------------------------------------------------------------------- backward

// Sums of the gradients that the activation let through, and of their products with the deviations.
template <class T, int kWidth>
struct Gradients {
  const T* x;
  const T* y;
  const T* dy;
  const float* mean;
  Activation activation;
  uint32_t channels;

  struct Terms {
    const Gradients& all;
    uint32_t channel;
    float mean[kWidth];
    __device__ void Add(size_t pixel, float (&sums)[2][kWidth]) const {
      const size_t at = pixel * all.channels + channel;
      float values[kWidth], results[kWidth] = {}, gradients[kWidth];
      LoadFloats<kWidth>(all.x + at, values);
      LoadFloats<kWidth>(all.dy + at, gradients);
      if (all.activation != Activation::kNone) LoadFloats<kWidth>(all.y + at, results);
      for (int i = 0; i < kWidth; ++i) {
        const float gradient = PassGradient(all.activation, results[i], gradients[i]);
        sums[0][i] += gradient;
        sums[1][i] += gradient * (values[i] - mean[i]);
      }
    }
  };
  __device__ Terms Begin(uint32_t channel) const {
    Terms terms{*this, channel, {}};
    LoadFloats<kWidth>(mean + channel, terms.mean);
    return terms;
  }
};

// dx = weight · inverse_std · (dy − dbias / n − (x − mean) · inverse_std · dweight / n)
struct FinishGradients {
  double pixels;
  const float* weight;
  const float* inverse_std;
  float* dweight;
  float* dbias;
  Scratch scratch;

  __device__ void operator()(uint32_t c, const double (&totals)[2]) const {
    const double deviation = inverse_std[c], factor = weight[c] * deviation;
    dbias[c] = static_cast<float>(totals[0]);
    dweight[c] = static_cast<float>(totals[1] * deviation);
    scratch.factor[c] = static_cast<float>(factor);
    scratch.slope[c] = static_cast<float>(-factor * deviation * deviation * totals[1] / pixels);
    scratch.offset[c] = static_cast<float>(-factor * totals[0] / pixels);
  }
};

template <class T, int kWidth>
__global__ void DataGradients(ColumnShape shape, Scratch scratch, Gradients<T, kWidth> in, T* dx,
                              T* dresidual) {
  const uint32_t channel = (blockIdx.y * blockDim.x + threadIdx.x) * kWidth;
  if (channel >= shape.channels) return;
  float factor[kWidth], offset[kWidth], slope[kWidth], mean[kWidth];
  LoadFloats<kWidth>(scratch.factor + channel, factor);
  LoadFloats<kWidth>(scratch.offset + channel, offset);
  LoadFloats<kWidth>(scratch.slope + channel, slope);
  LoadFloats<kWidth>(in.mean + channel, mean);
  const size_t step = size_t{gridDim.x} * blockDim.y;
  for (size_t pixel = size_t{blockIdx.x} * blockDim.y + threadIdx.y; pixel < shape.pixels;
       pixel += step) {
    const size_t at = pixel * shape.channels + channel;
    float values[kWidth], results[kWidth] = {}, gradients[kWidth];
    LoadFloats<kWidth>(in.x + at, values);
    LoadFloats<kWidth>(in.dy + at, gradients);
    if (in.activation != Activation::kNone) LoadFloats<kWidth>(in.y + at, results);
    for (int i = 0; i < kWidth; ++i) {
      gradients[i] = PassGradient(in.activation, results[i], gradients[i]);
      values[i] = gradients[i] * factor[i] + ((values[i] - mean[i]) * slope[i] + offset[i]);
    }
    if (dx != nullptr) StoreFloats<kWidth>(values, dx + at);
    if (dresidual != nullptr) StoreFloats<kWidth>(gradients, dresidual + at);
  }
}

template <class T, int kWidth>
void Backward(CudaDevice& gpu, const BatchNormSpec& spec, const BatchNormBackwardArgs& args,
              const Scratch& scratch) {
  const size_t pixels = PixelCount(spec, args.sample_count);
  const uint32_t channels = spec.shape.channels;
  const Gradients<T, kWidth> gradients{static_cast<const T*>(args.x),
                                       static_cast<const T*>(args.y),
                                       static_cast<const T*>(args.dy),
                                       args.mean,
                                       spec.activation,
                                       channels};
  SumColumns<2, kWidth>(gpu, pixels, channels, gradients,
                        FinishGradients{static_cast<double>(pixels), args.weight, args.inverse_std,
                                        args.dweight, args.dbias, scratch},
                        scratch.run_sums);
  if (args.dx == nullptr && args.dresidual == nullptr) return;
  const ColumnShape shape = PlanResult(gpu, pixels, channels, kWidth);
  Launch(gpu, shape.grid_size, shape.block_size, DataGradients<T, kWidth>, shape, scratch,
         gradients, static_cast<T*>(args.dx), static_cast<T*>(args.dresidual));
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
  WithElement(gpu.element(), [&]<class T>() {
    const auto* x = static_cast<const T*>(args.x);
    WithWidth<T>(channels, [&]<int kWidth>() {
      SumColumns<2, kWidth>(
          gpu, pixels, channels, Deviations<T, kWidth>{x, channels},
          FinishStatistics<T>{x, static_cast<double>(pixels), spec.eps, args.weight, args.bias,
                              args.mean, args.inverse_std, args.variance, scratch},
          scratch.run_sums);
    });
    LaunchNormalise<T>(gpu, spec, pixels, scratch, args.x, args.residual, args.y);
  });
}

void BatchNormInference(CudaDevice& gpu, const BatchNormSpec& spec,
                        const BatchNormInferenceArgs& args, std::span<std::byte> scratch_bytes) {
  const Scratch scratch = Carve(spec, scratch_bytes);
  Launch(gpu, dim3(DivideUp(spec.shape.channels, kMapThreads)), dim3(kMapThreads),
         FactorsOfGivenStatistics, spec.shape.channels, static_cast<double>(spec.eps), args.weight,
         args.bias, args.mean, args.variance, scratch);
  WithElement(gpu.element(), [&]<class T>() {
    LaunchNormalise<T>(gpu, spec, PixelCount(spec, args.sample_count), scratch, args.x,
                       args.residual, args.y);
  });
}

void BatchNormBackward(CudaDevice& gpu, const BatchNormSpec& spec,
                       const BatchNormBackwardArgs& args, std::span<std::byte> scratch) {
  WithElement(gpu.element(), [&]<class T>() {
    WithWidth<T>(spec.shape.channels,
                 [&]<int kWidth>() { Backward<T, kWidth>(gpu, spec, args, Carve(spec, scratch)); });
  });
}

}  // namespace pando::cuda
