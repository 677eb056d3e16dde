// Softmax cross-entropy on the GPU: a warp computes one sample, and one block adds the samples.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/map.h"

namespace pando::cuda {
namespace {

constexpr uint32_t kWarp = 32;
constexpr uint32_t kSamplesPerBlock = 4;
constexpr uint32_t kAllLanes = 0xffffffff;

struct SampleScore {
  float loss;
  uint32_t classes_ahead;  // of the label; kNever: the label's logit is NaN
};
constexpr uint32_t kNever = 0xffffffff;

// Reduces the values of a warp's lanes, always along the same tree.
template <class T, class F>
__device__ T Reduce(T value, F add) {
  for (uint32_t distance = kWarp / 2; distance > 0; distance /= 2) {
    value = add(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}
struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Larger {
  __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};

template <class T>
__global__ void ScoreSamples(uint32_t sample_count, uint32_t classes, float label_share,
                             float every_share, const T* logits, const int32_t* labels,
                             const float* gradient_scale, T* dlogits, SampleScore* scores) {
  const uint32_t s = blockIdx.x * kSamplesPerBlock + threadIdx.y;
  if (s >= sample_count) return;  // the whole warp
  const T* row = logits + size_t{s} * classes;
  const auto label = static_cast<uint32_t>(labels[s]);
  const float label_logit = ToFloat(row[label]);
  float largest = ToFloat(row[0]);
  for (uint32_t c = threadIdx.x; c < classes; c += kWarp) {
    largest = Larger()(ToFloat(row[c]), largest);
  }
  largest = Reduce(largest, Larger());
  float sum = 0, logit_sum = 0;
  uint32_t ahead = 0;
  for (uint32_t c = threadIdx.x; c < classes; c += kWarp) {
    const float logit = ToFloat(row[c]);
    sum += expf(logit - largest);
    logit_sum += logit - largest;
    ahead += logit > label_logit || (c < label && logit == label_logit);
  }
  sum = Reduce(sum, Plus());
  logit_sum = Reduce(logit_sum, Plus());
  ahead = Reduce(ahead, Plus());
  const float scale = gradient_scale == nullptr ? 1.0f : *gradient_scale;
  for (uint32_t c = threadIdx.x; c < classes; c += kWarp) {
    float gradient = expf(ToFloat(row[c]) - largest) / sum - every_share;
    if (c == label) gradient -= label_share;
    dlogits[size_t{s} * classes + c] = FromFloat<T>(gradient * scale);
  }
  if (threadIdx.x != 0) return;
  float loss = logf(sum) - label_share * (label_logit - largest);
  if (every_share > 0.0f) loss -= every_share * logit_sum;  // 0 · −∞ is not 0
  scores[s] = {loss, label_logit == label_logit ? ahead : kNever};
}

constexpr uint32_t kAddThreads = 256;

struct Totals {  // as in CrossEntropyScore
  double loss;
  uint32_t correct, top5;
  __device__ void Add(const Totals& more) {
    loss += more.loss;
    correct += more.correct;
    top5 += more.top5;
  }
};

// Runs as one block.
__global__ void AddScores(uint32_t sample_count, const SampleScore* scores,
                          CrossEntropyScore* total) {
  __shared__ Totals totals[kAddThreads];
  Totals& own = totals[threadIdx.x];
  own = {};
  for (uint32_t s = threadIdx.x; s < sample_count; s += kAddThreads) {
    const uint32_t ahead = scores[s].classes_ahead;
    own.Add({scores[s].loss, ahead == 0, ahead < 5});
  }
  for (uint32_t half = kAddThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) own.Add(totals[threadIdx.x + half]);
  }
  if (threadIdx.x == 0) *total = {own.loss, own.correct, own.top5};
}

__global__ void ScoreToFloatsKernel(const CrossEntropyScore* score, float* loss_and_correct) {
  loss_and_correct[0] = static_cast<float>(score->loss_sum);
  loss_and_correct[1] = static_cast<float>(score->correct_count);
}

}  // namespace

void ScoreToFloats(CudaDevice& gpu, const CrossEntropyScore* score, float* loss_and_correct) {
  Launch(gpu, dim3(1), dim3(1), ScoreToFloatsKernel, score, loss_and_correct);
}

size_t CrossEntropyScratchBytes(CudaDevice&, uint32_t sample_count_max) {
  return sample_count_max * sizeof(SampleScore);
}

void SoftmaxCrossEntropy(CudaDevice& gpu, const CrossEntropyArgs& args,
                         std::span<std::byte> scratch) {
  auto* scores = reinterpret_cast<SampleScore*>(scratch.data());
  WithElement(gpu.element(), [&]<class T>() {
    Launch(gpu, dim3(DivideUp(args.sample_count, kSamplesPerBlock)), dim3(kWarp, kSamplesPerBlock),
           ScoreSamples<T>, args.sample_count, args.class_count, 1.0f - args.label_smoothing,
           args.label_smoothing / static_cast<float>(args.class_count), args.logits, args.labels,
           args.gradient_scale, args.dlogits, scores);
  });
  Launch(gpu, dim3(1), dim3(kAddThreads), AddScores, args.sample_count, scores, args.score);
}

}  // namespace pando::cuda
