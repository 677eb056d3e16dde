// Convolution on the GPU: cuDNN's, or our own for depthwise convolutions. Around it come the other
// parts of the operation: weights in the libraries' layout, then bias, dropout2d's factors, the 2x2
// max pool and relu in one pass.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/map.h"
#include "kernels/cuda/own_conv.h"
#include "kernels/cuda/reduce.h"

namespace pando::cuda {
namespace {

// Uses cuDNN's convolution if it has an engine, otherwise our own for any shape.
void Convolve(CudaDevice& gpu, const ConvProblem& problem, const ConvArrays& arrays) {
  if (!gpu.convolutions().Run(problem, arrays)) DirectConvolve(gpu, problem, arrays);
}

// Returns whether backward begins with the operations after the convolution.
bool HasEpilogue(const Conv2dSpec& spec, bool has_scale) {
  return spec.max_pool || spec.relu || has_scale;
}

// Returns the convolution with the channels with which x is stored.
Conv2dSpec WithChannels(Conv2dSpec spec, uint32_t x_channels) {
  if (x_channels != 0) spec.input.channels = x_channels;
  return spec;
}

struct Scratch {
  CudaDevice& gpu;
  const Conv2dSpec& spec;
  uint32_t sample_count;
  ScratchCarver carver = {};
  size_t element = ElementBytes(gpu.element());
  uint32_t x_channels =  // the largest number with which x may be stored
      spec.groups > 1 ? 0 : StoredChannels({DeviceKind::kCuda, gpu.element()}, spec.input.channels);
  size_t weight_bytes = WithChannels(spec, x_channels).weight_size() * element;
  size_t depthwise_bytes = DepthwiseScratchBytes(gpu, spec);
  bool has_sums = HasEpilogue(spec, spec.has_channel_scale);
  // Elements: [out, taps, channels / groups].
  void* weight = carver.Take<std::byte>(weight_bytes);
  void* dweight = carver.Take<std::byte>(weight_bytes);
  // Elements: in forward the result before pooling, in backward its gradient.
  void* sums =
      carver.Take<std::byte>(has_sums ? spec.conv_output().size() * sample_count * element : 0);
  void* run_sums =  // for dbias
      carver.Take<std::byte>(RunSumsBytes(spec.out_channels, kPackWidth<Bfloat16>, 1));
  std::span<std::byte> depthwise = {carver.Take<std::byte>(depthwise_bytes), depthwise_bytes};
};

// ------------------------------------------------------------------------ the operations after it

// Each block row has one sample; each thread has kWidth channels of a pixel of the result. `sums`
// may be y if there is no pool.
template <class T, int kWidth>
__global__ void FinishForward(ConvGeometry g, const T* sums, Conv2dForwardArgsOf<T> args) {
  const uint32_t channels = g.result.channels, size = g.result.height * g.result.width * channels;
  const uint32_t i = IndexInSample() * kWidth;
  if (i >= size) return;
  const uint32_t c = i % channels, pixel = i / channels;
  const size_t at = size_t{blockIdx.y} * size + i;
  sums += size_t{blockIdx.y} * g.out.height * g.out.width * channels;
  float values[kWidth], offsets[kWidth], factors[kWidth];
  for (int k = 0; k < kWidth; ++k) {  // a bias may begin at any address
    offsets[k] = args.bias == nullptr ? 0.0f : args.bias[c + k];
    factors[k] = args.channel_scale == nullptr
                     ? 1.0f
                     : args.channel_scale[size_t{blockIdx.y} * channels + c + k];
  }
  if (g.spec.max_pool) {
    const uint32_t row = pixel / g.result.width * 2, column = pixel % g.result.width * 2;
    Pack<int32_t, kWidth> where;
    for (int32_t j = 0; j < 4; ++j) {
      const uint32_t from = (row + j / 2) * g.out.width + column + j % 2;
      float candidates[kWidth];
      LoadFloats<kWidth>(sums + from * channels + c, candidates);
      for (int k = 0; k < kWidth; ++k) {
        const float candidate = (candidates[k] + offsets[k]) * factors[k];
        if (j > 0 && !(candidate > values[k])) continue;
        values[k] = candidate;
        where.at[k] = j;
      }
    }
    StorePack(where, args.argmax + at);
  } else {
    LoadFloats<kWidth>(sums + i, values);
    for (int k = 0; k < kWidth; ++k) values[k] = (values[k] + offsets[k]) * factors[k];
  }
  for (int k = 0; k < kWidth; ++k) values[k] = g.spec.relu && values[k] < 0.0f ? 0.0f : values[k];
  StoreFloats<kWidth>(values, args.y + at);
}

// Makes the gradient of the convolution's own result: one thread has kWidth channels of one of its
// pixels.
template <class T, int kWidth>
__global__ void BeginBackward(ConvGeometry g, Conv2dBackwardArgsOf<T> args, T* dsums) {
  const uint32_t channels = g.out.channels, size = g.out.height * g.out.width * channels;
  const uint32_t i = IndexInSample() * kWidth;
  if (i >= size) return;
  const uint32_t c = i % channels, pixel = i / channels;
  const uint32_t row = pixel / g.out.width, column = pixel % g.out.width;
  float gradients[kWidth] = {};
  if (!g.spec.max_pool || (row / 2 < g.result.height && column / 2 < g.result.width)) {
    const uint32_t out_pixel = g.spec.max_pool ? row / 2 * g.result.width + column / 2 : pixel;
    const size_t from =
        (size_t{blockIdx.y} * g.result.height * g.result.width + out_pixel) * channels + c;
    LoadFloats<kWidth>(args.dy + from, gradients);
    if (g.spec.relu) {
      float outputs[kWidth];
      LoadFloats<kWidth>(args.y + from, outputs);
      for (int k = 0; k < kWidth; ++k) gradients[k] = outputs[k] > 0.0f ? gradients[k] : 0.0f;
    }
    if (g.spec.max_pool) {
      const Pack<int32_t, kWidth> chosen = LoadPack<kWidth>(args.argmax + from);
      const auto self = static_cast<int32_t>(row % 2 * 2 + column % 2);
      for (int k = 0; k < kWidth; ++k) gradients[k] = chosen.at[k] == self ? gradients[k] : 0.0f;
    }
    const float* scale = args.channel_scale;
    if (scale != nullptr) scale += size_t{blockIdx.y} * channels + c;
    for (int k = 0; k < kWidth; ++k) gradients[k] *= scale == nullptr ? 1.0f : scale[k];
  }
  StoreFloats<kWidth>(gradients, dsums + size_t{blockIdx.y} * size + i);
}

}  // namespace

// ------------------------------------------------------------------------ the operation

// It is called for many sample counts, of which few are used, so it makes no plan.
size_t Conv2dScratchBytes(CudaDevice& gpu, const Conv2dSpec& spec, uint32_t sample_count_max) {
  return Scratch{gpu, spec, sample_count_max}.carver.used_bytes();
}

void Conv2dForward(CudaDevice& gpu, const Conv2dSpec& spec, const Conv2dForwardArgs& args,
                   std::span<std::byte> scratch) {
  const Scratch s{gpu, spec, args.sample_count, ScratchCarver(scratch)};
  void* const sums = spec.max_pool ? s.sums : args.y;
  if (IsDepthwise(spec)) {
    DepthwiseForward(gpu, spec, args, sums, s.depthwise);
  } else {
    const Conv2dSpec stored = WithChannels(spec, args.x_channels);
    FilterToElements(gpu, spec, stored, args.weight, s.weight);
    Convolve(gpu, {ConvPass::kForward, stored, args.sample_count},
             {.x = const_cast<void*>(args.x), .w = s.weight, .y = sums});
  }
  if (!HasEpilogue(spec, args.channel_scale != nullptr) && args.bias == nullptr) return;
  WithPacks(gpu.element(), spec.out_channels, [&]<class T, int kWidth>() {
    Launch(gpu,
           SampleGrid(spec.output().size(), spec.conv_output().size(), kWidth, args.sample_count),
           dim3(kMapThreads), FinishForward<T, kWidth>, ConvGeometry(spec), sums, Typed<T>(args));
  });
}

void Conv2dBackward(CudaDevice& gpu, const Conv2dSpec& spec, const Conv2dBackwardArgs& args,
                    std::span<std::byte> scratch) {
  const Scratch s{gpu, spec, args.sample_count, ScratchCarver(scratch)};
  const void* dsums = args.dy;
  if (HasEpilogue(spec, args.channel_scale != nullptr)) {
    dsums = s.sums;
    WithPacks(gpu.element(), spec.out_channels, [&]<class T, int kWidth>() {
      Launch(gpu,
             SampleGrid(spec.conv_output().size(), spec.output().size(), kWidth, args.sample_count),
             dim3(kMapThreads), BeginBackward<T, kWidth>, ConvGeometry(spec), Typed<T>(args),
             s.sums);
    });
  }
  if (args.dbias != nullptr) {
    const size_t pixels = spec.conv_output().size() / spec.out_channels * args.sample_count;
    SumElements(gpu, pixels, spec.out_channels, dsums, args.dbias, s.run_sums);
  }
  if (IsDepthwise(spec)) return DepthwiseBackward(gpu, spec, args, dsums, s.depthwise);
  void* const x = const_cast<void*>(args.x);
  void* const dy = const_cast<void*>(dsums);
  const Conv2dSpec stored = WithChannels(spec, args.x_channels);
  Convolve(gpu, {ConvPass::kWeightGradient, stored, args.sample_count},
           {.x = x, .w = s.dweight, .y = dy});
  FilterToFloats(gpu, spec, stored, s.dweight, args.dweight);
  if (args.dx == nullptr) return;
  FilterToElements(gpu, spec, spec, args.weight, s.weight);
  Convolve(gpu, {ConvPass::kDataGradient, spec, args.sample_count, args.adds_dx},
           {.x = args.dx, .w = s.weight, .y = dy});
}

}  // namespace pando::cuda
