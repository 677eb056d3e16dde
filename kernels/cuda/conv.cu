// Convolution on the GPU: cuDNN's, or our own where every channel stands alone; before and after it
// what the operation does besides: weights into the layout of the libraries, bias, dropout2d's
// factors, the 2x2 max pool and relu in one pass.
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

ConvProblem ProblemOf(const Conv2dSpec& spec, uint32_t sample_count, ConvPass pass) {
  return {.pass = pass,
          .input = spec.input,
          .out_channels = spec.out_channels,
          .kernel = spec.kernel,
          .stride = spec.stride,
          .padding = spec.padding,
          .groups = spec.groups,
          .sample_count = sample_count};
}

// cuDNN's where it has an engine, else our own of any shape.
void Convolve(CudaDevice& gpu, const ConvProblem& problem, const ConvArrays& arrays) {
  if (!gpu.convolutions().Run(problem, arrays)) DirectConvolve(gpu, problem, arrays);
}

bool HasEpilogue(const Conv2dSpec& spec, bool has_scale) {
  return spec.max_pool || spec.relu || has_scale;
}

uint32_t TapsOf(const Conv2dSpec& spec) { return spec.kernel * spec.kernel; }
uint32_t ChannelsPerGroup(const Conv2dSpec& spec) { return spec.input.channels / spec.groups; }

struct Scratch {
  std::byte* weight;    // elements, [out, taps, channels / groups]
  std::byte* dweight;   // the same of its gradient
  std::byte* sums;      // elements: forward what is not yet pooled, backward the gradient of that
  std::byte* run_sums;  // of dbias
  std::span<std::byte> depthwise;
};

Scratch Carve(CudaDevice& gpu, const Conv2dSpec& spec, uint32_t sample_count,
              ScratchCarver& carver) {
  const size_t element = ElementBytes(gpu.element());
  const size_t depthwise = DepthwiseScratchBytes(gpu, spec);
  Scratch s{};
  s.weight = carver.Take(spec.weight_size() * element);
  s.dweight = carver.Take(spec.weight_size() * element);
  s.sums = carver.Take(spec.conv_output().size() * sample_count * element);
  s.run_sums = carver.Take(RunSumsBytes(spec.out_channels, kPackWidth<Bfloat16>, 1));
  s.depthwise = {carver.Take(depthwise), depthwise};
  return s;
}

// ---------------------------------------------------------------------------------- what follows
// it

// Of the convolution's result at [sample, pixel, channel] with what follows it.
struct Epilogue {
  uint32_t conv_width;
  uint32_t width;  // of the result
  uint32_t height;
  uint32_t conv_height;
  uint32_t channels;
  bool max_pool;
  bool relu;
};

Epilogue EpilogueOf(const Conv2dSpec& spec) {
  const SampleShape conv = spec.conv_output(), out = spec.output();
  return {conv.width, out.width, out.height, conv.height, out.channels, spec.max_pool, spec.relu};
}

// One block row a sample, one thread an element of the result. sums may be y where nothing is
// pooled.
template <class T>
__global__ void FinishForward(Epilogue e, const T* sums, const float* bias, const float* scale,
                              T* y, int32_t* argmax) {
  const uint32_t size = e.height * e.width * e.channels;
  sums += size_t{blockIdx.y} * e.conv_height * e.conv_width * e.channels;
  y += size_t{blockIdx.y} * size;
  argmax += size_t{blockIdx.y} * size;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += gridDim.x * blockDim.x) {
    const uint32_t c = i % e.channels, pixel = i / e.channels;
    const float offset = bias == nullptr ? 0.0f : bias[c];
    const float factor = scale == nullptr ? 1.0f : scale[size_t{blockIdx.y} * e.channels + c];
    float value;
    if (e.max_pool) {
      const uint32_t row = pixel / e.width * 2, column = pixel % e.width * 2;
      int32_t where = 0;
      for (int32_t k = 0; k < 4; ++k) {
        const uint32_t from = (row + k / 2) * e.conv_width + column + k % 2;
        const float candidate = (ToFloat(sums[from * e.channels + c]) + offset) * factor;
        if (k > 0 && !(candidate > value)) continue;
        value = candidate;
        where = k;
      }
      argmax[i] = where;
    } else {
      value = (ToFloat(sums[i]) + offset) * factor;
    }
    y[i] = FromFloat<T>(e.relu && value < 0.0f ? 0.0f : value);
  }
}

// The gradient of the convolution's own result: one thread an element of that.
template <class T>
__global__ void BeginBackward(Epilogue e, const T* y, const T* dy, const float* scale,
                              const int32_t* argmax, T* dsums) {
  const uint32_t conv_size = e.conv_height * e.conv_width * e.channels;
  const size_t first = size_t{blockIdx.y} * e.height * e.width * e.channels;
  dsums += size_t{blockIdx.y} * conv_size;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < conv_size;
       i += gridDim.x * blockDim.x) {
    const uint32_t c = i % e.channels;
    size_t from = first + i;
    bool is_chosen = true;
    if (e.max_pool) {
      const uint32_t row = i / e.channels / e.conv_width, column = i / e.channels % e.conv_width;
      const bool is_left_out = row / 2 >= e.height || column / 2 >= e.width;
      from = first + (size_t{row / 2} * e.width + column / 2) * e.channels + c;
      is_chosen = !is_left_out && argmax[from] == static_cast<int32_t>(row % 2 * 2 + column % 2);
    }
    if (is_chosen && e.relu) is_chosen = ToFloat(y[from]) > 0.0f;
    const float factor = scale == nullptr ? 1.0f : scale[size_t{blockIdx.y} * e.channels + c];
    dsums[i] = FromFloat<T>(is_chosen ? ToFloat(dy[from]) * factor : 0.0f);
  }
}

}  // namespace

// ------------------------------------------------------------------------------------- the
// operation

size_t Conv2dScratchBytes(CudaDevice& gpu, const Conv2dSpec& spec, uint32_t sample_count_max) {
  for (ConvPass pass : {ConvPass::kForward, ConvPass::kDataGradient, ConvPass::kWeightGradient}) {
    if (IsDepthwise(spec)) break;
    gpu.convolutions().Prepare(ProblemOf(spec, sample_count_max, pass));
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
    FilterToElements(gpu, spec.out_channels, ChannelsPerGroup(spec), TapsOf(spec), args.weight,
                     s.weight);
    Convolve(gpu, ProblemOf(spec, args.sample_count, ConvPass::kForward),
             {.x = const_cast<void*>(args.x), .w = s.weight, .y = sums});
  }
  if (!HasEpilogue(spec, args.channel_scale != nullptr) && args.bias == nullptr) return;
  WithElement(gpu.element(), [&]<class T>() {
    Launch(gpu, SampleGrid(spec.output().size(), args.sample_count), dim3(kMapThreads),
           FinishForward<T>, EpilogueOf(spec), static_cast<const T*>(sums), args.bias,
           args.channel_scale, static_cast<T*>(args.y), args.argmax);
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
      Launch(gpu, SampleGrid(spec.conv_output().size(), args.sample_count), dim3(kMapThreads),
             BeginBackward<T>, EpilogueOf(spec), static_cast<const T*>(args.y),
             static_cast<const T*>(args.dy), args.channel_scale, args.argmax,
             reinterpret_cast<T*>(s.sums));
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
    Convolve(gpu, ProblemOf(spec, args.sample_count, pass), arrays);
  };
  void* const x = const_cast<void*>(args.x);
  void* const dy = const_cast<void*>(dsums);
  run(ConvPass::kWeightGradient, {.x = x, .w = s.dweight, .y = dy});
  FilterToFloats(gpu, spec.out_channels, ChannelsPerGroup(spec), TapsOf(spec), s.dweight,
                 args.dweight);
  if (args.dx == nullptr) return;
  FilterToElements(gpu, spec.out_channels, ChannelsPerGroup(spec), TapsOf(spec), args.weight,
                   s.weight);
  run(ConvPass::kDataGradient, {.x = args.dx, .w = s.weight, .y = dy});
}

}  // namespace pando::cuda
