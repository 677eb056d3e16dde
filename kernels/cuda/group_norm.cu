// Group normalisation on the GPU. An array is samples times pixels times channels. Each direction
// has three launches: sums over a sample's pixels, channel by channel; then one thread per sample
// and group joins those of its channels, in fp64; then the result, element by element.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/map.h"

namespace pando::cuda {
namespace {

struct Sizes {
  uint32_t samples, pixels, channels, groups;

  __host__ __device__ size_t sample_size() const { return size_t{pixels} * channels; }
  __host__ __device__ uint32_t group_channels() const { return channels / groups; }
  __device__ double group_size() const { return static_cast<double>(pixels) * group_channels(); }
  // Returns the row of the sample's group with this channel in [samples, groups].
  __device__ size_t Row(size_t sample, uint32_t channel) const {
    return sample * groups + channel / group_channels();
  }
};

Sizes MakeSizes(const GroupNormSpec& spec, uint32_t sample_count) {
  const size_t pixels = size_t{spec.shape.height} * spec.shape.width;
  return {sample_count, CheckedCast<uint32_t>(pixels), spec.shape.channels, spec.groups};
}

struct Scratch {
  double* sums;  // [samples, channels, 2]
  float* slope;  // [samples, groups]; the next one too
  float* offset;
};

Scratch Carve(const Sizes& sizes, std::span<std::byte> scratch) {
  auto* sums = reinterpret_cast<double*>(scratch.data());
  auto* slope = reinterpret_cast<float*>(sums + size_t{2} * sizes.samples * sizes.channels);
  return {sums, slope, slope + size_t{sizes.samples} * sizes.groups};
}

// ------------------------------------------------------------------------------------------- sums

// A block has kSumAcross adjacent channels, and every kSumDown-th pixel of a sample.
constexpr uint32_t kSumAcross = 32, kSumDown = 8;

// sums[sample, channel] has the sums of f's two values over the sample's pixels.
//   f(float at, sample, channel, a, b) adds to a and b
template <class F>
__global__ void SumPixels(Sizes sizes, F f, double* sums) {
  const uint32_t sample = blockIdx.y;
  const uint32_t channel = blockIdx.x * kSumAcross + threadIdx.x;
  const bool has_channel = channel < sizes.channels;
  float a = 0.0f, b = 0.0f;
  if (has_channel) {
    const size_t first = sample * sizes.sample_size() + channel;
    for (uint32_t pixel = threadIdx.y; pixel < sizes.pixels; pixel += kSumDown) {
      f(first + size_t{pixel} * sizes.channels, sample, channel, a, b);
    }
  }
  __shared__ float shared[2][kSumDown][kSumAcross];
  shared[0][threadIdx.y][threadIdx.x] = a;
  shared[1][threadIdx.y][threadIdx.x] = b;
  __syncthreads();
  if (threadIdx.y > 1 || !has_channel) return;
  double total = 0.0;
  for (uint32_t i = 0; i < kSumDown; ++i) total += shared[threadIdx.y][i][threadIdx.x];
  sums[(size_t{sample} * sizes.channels + channel) * 2 + threadIdx.y] = total;
}

template <class F>
void LaunchSums(CudaDevice& gpu, const Sizes& sizes, const F& f, const Scratch& scratch) {
  Launch(gpu, dim3(DivideUp(sizes.channels, kSumAcross), sizes.samples), dim3(kSumAcross, kSumDown),
         SumPixels<F>, sizes, f, scratch.sums);
}

// Deviations from the channel's first value in the sample, and their squares.
template <class T>
struct Deviations {
  const T* x;
  Sizes sizes;
  __device__ void operator()(size_t at, uint32_t sample, uint32_t channel, float& sum,
                             float& squares) const {
    const float center = ToFloat(x[sample * sizes.sample_size() + channel]);
    const float deviation = ToFloat(x[at]) - center;
    sum += deviation;
    squares += deviation * deviation;
  }
};

// Gradients, and their products with the deviations from the group's mean.
template <class T>
struct Gradients {
  GroupNormBackwardArgsOf<T> args;
  Sizes sizes;
  __device__ void operator()(size_t at, uint32_t sample, uint32_t channel, float& gradients,
                             float& products) const {
    const float gradient = ToFloat(args.dy[at]);
    gradients += gradient;
    products += gradient * (ToFloat(args.x[at]) - args.mean[sizes.Row(sample, channel)]);
  }
};

// ---------------------------------------------------------------------------------------- groups

// One thread per sample and group: joins the group's mean and deviation from its channels'.
template <class T>
__global__ void JoinChannels(Sizes sizes, GroupNormForwardArgsOf<T> args, double eps,
                             const double* sums) {
  const size_t row = ThreadIndex();
  if (row >= size_t{sizes.samples} * sizes.groups) return;
  const size_t sample = row / sizes.groups;
  const uint32_t first = (row % sizes.groups) * sizes.group_channels();
  const T* centers = args.x + sample * sizes.sample_size() + first;
  const double* of = sums + (sample * sizes.channels + first) * 2;
  double group_mean = 0.0, squares = 0.0;
  for (uint32_t c = 0; c < sizes.group_channels(); ++c) {
    group_mean += ToFloat(centers[c]) + of[2 * c] / sizes.pixels;
  }
  group_mean /= sizes.group_channels();
  for (uint32_t c = 0; c < sizes.group_channels(); ++c) {
    const double from_center = of[2 * c] / sizes.pixels;
    const double apart = ToFloat(centers[c]) + from_center - group_mean;
    const double within = of[2 * c + 1] - of[2 * c] * from_center;
    squares += (within < 0.0 ? 0.0 : within) + apart * apart * sizes.pixels;  // NaN stays
  }
  args.mean[row] = static_cast<float>(group_mean);
  args.inverse_std[row] = static_cast<float>(1.0 / sqrt(squares / sizes.group_size() + eps));
}

// One thread per sample and group: computes the terms of dx that the group's elements share.
__global__ void JoinGradients(Sizes sizes, GroupNormBackwardArgs args, Scratch scratch) {
  const size_t row = ThreadIndex();
  if (row >= size_t{sizes.samples} * sizes.groups) return;
  const size_t sample = row / sizes.groups;
  const uint32_t first = (row % sizes.groups) * sizes.group_channels();
  const double* of = scratch.sums + (sample * sizes.channels + first) * 2;
  double gradients = 0.0, products = 0.0;
  for (uint32_t c = 0; c < sizes.group_channels(); ++c) {
    gradients += args.weight[first + c] * of[2 * c];
    products += args.weight[first + c] * of[2 * c + 1];
  }
  const double deviation = args.inverse_std[row];
  scratch.slope[row] =
      static_cast<float>(-deviation * deviation * deviation * products / sizes.group_size());
  scratch.offset[row] = static_cast<float>(-deviation * gradients / sizes.group_size());
}

// One thread per channel: adds the gradients of weight and bias over all samples, in order.
__global__ void AddSamples(Sizes sizes, GroupNormBackwardArgs args, const double* sums) {
  const uint32_t channel = static_cast<uint32_t>(ThreadIndex());
  if (channel >= sizes.channels) return;
  double gradients = 0.0, products = 0.0;
  for (size_t sample = 0; sample < sizes.samples; ++sample) {
    const double* of = sums + (sample * sizes.channels + channel) * 2;
    gradients += of[0];
    products += of[1] * args.inverse_std[sizes.Row(sample, channel)];
  }
  args.dbias[channel] = static_cast<float>(gradients);
  args.dweight[channel] = static_cast<float>(products);
}

dim3 OneEach(size_t count) { return dim3(DivideUp(count, kMapThreads)); }

// ------------------------------------------------------------------------------------- the result

// Calls f(i, channel, row) for the elements of this thread.
template <class F>
__device__ void ForElements(const Sizes& sizes, F f) {
  const size_t count = sizes.samples * sizes.sample_size();
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = ThreadIndex(); i < count; i += step) {
    const uint32_t channel = i % sizes.channels;
    f(i, channel, sizes.Row(i / sizes.sample_size(), channel));
  }
}

template <class T>
__global__ void Normalise(Sizes sizes, GroupNormForwardArgsOf<T> args) {
  ForElements(sizes, [&](size_t i, uint32_t channel, size_t row) {
    const float normal = (ToFloat(args.x[i]) - args.mean[row]) * args.inverse_std[row];
    args.y[i] = FromFloat<T>(normal * args.weight[channel] + args.bias[channel]);
  });
}

template <class T>
__global__ void DataGradients(Sizes sizes, GroupNormBackwardArgsOf<T> args, Scratch scratch) {
  ForElements(sizes, [&](size_t i, uint32_t channel, size_t row) {
    const float deviation = ToFloat(args.x[i]) - args.mean[row];
    args.dx[i] = FromFloat<T>(ToFloat(args.dy[i]) * args.weight[channel] * args.inverse_std[row] +
                              (deviation * scratch.slope[row] + scratch.offset[row]));
  });
}

}  // namespace

size_t GroupNormScratchBytes(CudaDevice&, const GroupNormSpec& spec, uint32_t sample_count_max) {
  const size_t sums = size_t{2} * sample_count_max * spec.shape.channels * sizeof(double);
  return sums + size_t{2} * sample_count_max * spec.groups * sizeof(float);
}

void GroupNormForward(CudaDevice& gpu, const GroupNormSpec& spec, const GroupNormForwardArgs& args,
                      std::span<std::byte> scratch_bytes) {
  const Sizes sizes = MakeSizes(spec, args.sample_count);
  const Scratch scratch = Carve(sizes, scratch_bytes);
  WithElement(gpu.element(), [&]<class T>() {
    const GroupNormForwardArgsOf<T> typed = Typed<T>(args);
    LaunchSums(gpu, sizes, Deviations<T>{typed.x, sizes}, scratch);
    Launch(gpu, OneEach(size_t{sizes.samples} * sizes.groups), dim3(kMapThreads), JoinChannels<T>,
           sizes, typed, spec.eps, scratch.sums);
    Launch(gpu, GridSize(gpu, sizes.samples * sizes.sample_size(), 1), dim3(kMapThreads),
           Normalise<T>, sizes, typed);
  });
}

void GroupNormBackward(CudaDevice& gpu, const GroupNormSpec& spec,
                       const GroupNormBackwardArgs& args, std::span<std::byte> scratch_bytes) {
  const Sizes sizes = MakeSizes(spec, args.sample_count);
  const Scratch scratch = Carve(sizes, scratch_bytes);
  WithElement(gpu.element(), [&]<class T>() {
    const GroupNormBackwardArgsOf<T> typed = Typed<T>(args);
    LaunchSums(gpu, sizes, Gradients<T>{typed, sizes}, scratch);
    Launch(gpu, OneEach(sizes.channels), dim3(kMapThreads), AddSamples, sizes, args, scratch.sums);
    if (args.dx == nullptr) return;
    Launch(gpu, OneEach(size_t{sizes.samples} * sizes.groups), dim3(kMapThreads), JoinGradients,
           sizes, args, scratch);
    Launch(gpu, GridSize(gpu, sizes.samples * sizes.sample_size(), 1), dim3(kMapThreads),
           DataGradients<T>, sizes, typed, scratch);
  });
}

}  // namespace pando::cuda
