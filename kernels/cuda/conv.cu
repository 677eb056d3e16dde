// Convolution on the GPU: cuDNN's, or our own for depthwise convolutions. Around it the other parts
// of the operation: weights into the libraries' layout, bias, dropout2d's factors, the 2x2 max pool
// and relu in one pass.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/depthwise.h"
#include "kernels/cuda/direct_conv.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/scratch.h"

namespace pando::cuda {
namespace {

ConvProblem MakeProblem(const Conv2dSpec& spec, uint32_t sample_count, ConvPass pass) {
  return {.pass = pass,
          .input = spec.input,
          .out_channels = spec.out_channels,
          .kernel = spec.kernel,
          .stride = spec.stride,
          .padding = spec.padding,
          .groups = spec.groups,
          .sample_count = sample_count};
}

// cuDNN's if it has an engine, otherwise our own for any shape.
void Convolve(CudaDevice& gpu, const ConvProblem& problem, const ConvArrays& arrays) {
  if (!gpu.convolutions().Run(problem, arrays)) DirectConvolve(gpu, problem, arrays);
}

// Whether backward begins with the operations after the convolution.
bool HasEpilogue(const Conv2dSpec& spec, bool has_scale) {
  return spec.max_pool || spec.relu || has_scale;
}

uint32_t CountTaps(const Conv2dSpec& spec) { return spec.kernel * spec.kernel; }
uint32_t ChannelsPerGroup(const Conv2dSpec& spec) { return spec.input.channels / spec.groups; }

struct Scratch {
  std::byte* weight;    // elements, [out, taps, channels / groups]
  std::byte* dweight;   // the same for its gradient
  std::byte* sums;      // elements: forward the result before pooling, backward its gradient
  std::byte* run_sums;  // for dbias
  std::span<std::byte> depthwise;
};

Scratch Carve(CudaDevice& gpu, const Conv2dSpec& spec, uint32_t sample_count,
              ScratchCarver& carver) {
  const size_t element = ElementBytes(gpu.element());
  const size_t depthwise = DepthwiseScratchBytes(gpu, spec);
  Scratch s{};
  s.weight = carver.Take(spec.weight_size() * element);
  s.dweight = carver.Take(spec.weight_size() * element);
  const bool has_sums = HasEpilogue(spec, spec.has_channel_scale);
  s.sums = carver.Take(has_sums ? spec.conv_output().size() * sample_count * element : 0);
  s.run_sums = carver.Take(RunSumsBytes(spec.out_channels, kPackWidth<Bfloat16>, 1));
  s.depthwise = {carver.Take(depthwise), depthwise};
  return s;
}

// ---------------------------------------------------------------------------------- what follows
// it

// The convolution's result at [sample, pixel, channel] with the operations after it.
struct Epilogue {
  uint32_t conv_width;
  uint32_t width;  // of the result
  uint32_t height;
  uint32_t conv_height;
  uint32_t channels;
  bool max_pool;
  bool relu;
};

Epilogue MakeEpilogue(const Conv2dSpec& spec) {
  const SampleShape conv = spec.conv_output(), out = spec.output();
  return {conv.width, out.width, out.height, conv.height, out.channels, spec.max_pool, spec.relu};
}

// One block row per sample; one thread has kWidth channels of a pixel of the result. sums may be y
// if nothing is pooled.
template <class T, int kWidth>
__global__ void FinishForward(Epilogue e, const T* sums, const float* bias, const float* scale,
                              T* y, int32_t* argmax) {
  const uint32_t size = e.height * e.width * e.channels, columns = e.channels / kWidth;
  sums += size_t{blockIdx.y} * e.conv_height * e.conv_width * e.channels;
  y += size_t{blockIdx.y} * size;
  if (scale != nullptr) scale += size_t{blockIdx.y} * e.channels;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < size / kWidth;
       i += gridDim.x * blockDim.x) {
    const uint32_t c = i % columns * kWidth, pixel = i / columns;
    float values[kWidth], offsets[kWidth], factors[kWidth];
    for (int k = 0; k < kWidth; ++k) {  // a bias may begin at any address
      offsets[k] = bias == nullptr ? 0.0f : bias[c + k];
      factors[k] = scale == nullptr ? 1.0f : scale[c + k];
    }
    if (e.max_pool) {
      const uint32_t row = pixel / e.width * 2, column = pixel % e.width * 2;
      Pack<int32_t, kWidth> where;
      for (int32_t j = 0; j < 4; ++j) {
        const uint32_t from = (row + j / 2) * e.conv_width + column + j % 2;
        float candidates[kWidth];
        LoadFloats<kWidth>(sums + from * e.channels + c, candidates);
        for (int k = 0; k < kWidth; ++k) {
          const float candidate = (candidates[k] + offsets[k]) * factors[k];
          if (j > 0 && !(candidate > values[k])) continue;
          values[k] = candidate;
          where.at[k] = j;
        }
      }
      StorePack(where, argmax + size_t{blockIdx.y} * size + i * kWidth);
    } else {
      LoadFloats<kWidth>(sums + i * kWidth, values);
      for (int k = 0; k < kWidth; ++k) values[k] = (values[k] + offsets[k]) * factors[k];
    }
    for (int k = 0; k < kWidth; ++k) values[k] = e.relu && values[k] < 0.0f ? 0.0f : values[k];
    StoreFloats<kWidth>(values, y + i * kWidth);
  }
}

// The gradient of the convolution's own result: one thread has kWidth channels of one of its
// pixels.
template <class T, int kWidth>
__global__ void BeginBackward(Epilogue e, const T* y, const T* dy, const float* scale,
                              const int32_t* argmax, T* dsums) {
  const uint32_t conv_size = e.conv_height * e.conv_width * e.channels;
  const uint32_t columns = e.channels / kWidth;
  const size_t first = size_t{blockIdx.y} * e.height * e.width * e.channels;
  dsums += size_t{blockIdx.y} * conv_size;
  if (scale != nullptr) scale += size_t{blockIdx.y} * e.channels;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < conv_size / kWidth;
       i += gridDim.x * blockDim.x) {
    const uint32_t c = i % columns * kWidth, pixel = i / columns;
    const uint32_t row = pixel / e.conv_width, column = pixel % e.conv_width;
    float gradients[kWidth] = {};
    if (!e.max_pool || (row / 2 < e.height && column / 2 < e.width)) {
      const uint32_t out_pixel = e.max_pool ? row / 2 * e.width + column / 2 : pixel;
      const size_t from = first + size_t{out_pixel} * e.channels + c;
      LoadFloats<kWidth>(dy + from, gradients);
      if (e.relu) {
        float outputs[kWidth];
        LoadFloats<kWidth>(y + from, outputs);
        for (int k = 0; k < kWidth; ++k) gradients[k] = outputs[k] > 0.0f ? gradients[k] : 0.0f;
      }
      if (e.max_pool) {
        const Pack<int32_t, kWidth> chosen = LoadPack<kWidth>(argmax + from);
        const auto self = static_cast<int32_t>(row % 2 * 2 + column % 2);
        for (int k = 0; k < kWidth; ++k) gradients[k] = chosen.at[k] == self ? gradients[k] : 0.0f;
      }
      for (int k = 0; k < kWidth; ++k) gradients[k] *= scale == nullptr ? 1.0f : scale[c + k];
    }
    StoreFloats<kWidth>(gradients, dsums + i * kWidth);
  }
}

}  // namespace

// ------------------------------------------------------------------------------------- the
// operation

size_t Conv2dScratchBytes(CudaDevice& gpu, const Conv2dSpec& spec, uint32_t sample_count_max) {
  for (ConvPass pass : {ConvPass::kForward, ConvPass::kDataGradient, ConvPass::kWeightGradient}) {
    if (IsDepthwise(spec)) break;
    gpu.convolutions().Prepare(MakeProblem(spec, sample_count_max, pass));
  }
  ScratchCarver counter;
  Carve(gpu, spec, sample_count_max, counter);
  return counter.used_bytes();
}

void Conv2dForward(CudaDevice& gpu, const Conv2dSpec& spec, const Conv2dForwardArgs& args,
                   std::span<std::byte> scratch) {
  ScratchCarver carver(scratch);
  const Scratch s = Carve(gpu, spec, args.sample_count, carver);
  void* const sums = spec.max_pool ? s.sums : args.y;
  if (IsDepthwise(spec)) {
    DepthwiseForward(gpu, spec, args.sample_count, args.x, args.weight, sums, s.depthwise);
  } else {
    FilterToElements(gpu, spec.out_channels, ChannelsPerGroup(spec), CountTaps(spec), args.weight,
                     s.weight);
    Convolve(gpu, MakeProblem(spec, args.sample_count, ConvPass::kForward),
             {.x = const_cast<void*>(args.x), .w = s.weight, .y = sums});
  }
  if (!HasEpilogue(spec, args.channel_scale != nullptr) && args.bias == nullptr) return;
  WithElement(gpu.element(), [&]<class T>() {
    WithWidth<T>(spec.out_channels, [&]<int kWidth>() {
      Launch(gpu, SampleGrid(spec.output().size(), kWidth, args.sample_count), dim3(kMapThreads),
             FinishForward<T, kWidth>, MakeEpilogue(spec), static_cast<const T*>(sums), args.bias,
             args.channel_scale, static_cast<T*>(args.y), args.argmax);
    });
  });
}

void Conv2dBackward(CudaDevice& gpu, const Conv2dSpec& spec, const Conv2dBackwardArgs& args,
                    std::span<std::byte> scratch) {
  ScratchCarver carver(scratch);
  const Scratch s = Carve(gpu, spec, args.sample_count, carver);
  const void* dsums = args.dy;
  if (HasEpilogue(spec, args.channel_scale != nullptr)) {
    dsums = s.sums;
    WithElement(gpu.element(), [&]<class T>() {
      WithWidth<T>(spec.out_channels, [&]<int kWidth>() {
        Launch(gpu, SampleGrid(spec.conv_output().size(), kWidth, args.sample_count),
               dim3(kMapThreads), BeginBackward<T, kWidth>, MakeEpilogue(spec),
               static_cast<const T*>(args.y), static_cast<const T*>(args.dy), args.channel_scale,
               args.argmax, reinterpret_cast<T*>(s.sums));
      });
    });
  }
  if (args.dbias != nullptr) {
    const size_t pixels = spec.conv_output().size() / spec.out_channels * args.sample_count;
    SumElements(gpu, pixels, spec.out_channels, dsums, args.dbias, s.run_sums);
  }
  if (IsDepthwise(spec)) {
    return DepthwiseBackward(gpu, spec, args.sample_count,
                             {args.x, args.weight, dsums, args.dx, args.dweight}, s.depthwise);
  }
  const auto run = [&](ConvPass pass, const ConvArrays& arrays) {
    Convolve(gpu, MakeProblem(spec, args.sample_count, pass), arrays);
  };
  void* const x = const_cast<void*>(args.x);
  void* const dy = const_cast<void*>(dsums);
  run(ConvPass::kWeightGradient, {.x = x, .w = s.dweight, .y = dy});
  FilterToFloats(gpu, spec.out_channels, ChannelsPerGroup(spec), CountTaps(spec), s.dweight,
                 args.dweight);
  if (args.dx == nullptr) return;
  FilterToElements(gpu, spec.out_channels, ChannelsPerGroup(spec), CountTaps(spec), args.weight,
                   s.weight);
  run(ConvPass::kDataGradient, {.x = args.dx, .w = s.weight, .y = dy});
}

}  // namespace pando::cuda
