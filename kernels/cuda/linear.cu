// Linear layers on the GPU: cuBLASLt's products, with bias and relu in forward, and the sums for
// the gradients of biases.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/map.h"
#include "kernels/cuda/reduce.h"

namespace pando::cuda {
namespace {

struct Scratch {
  CudaDevice& gpu;
  const LinearSpec& spec;
  ScratchCarver carver = {};
  size_t element = ElementBytes(gpu.element());
  size_t weights = size_t{spec.in_features} * spec.out_features;
  void* weight = carver.Take<std::byte>(weights * element);  // elements; the next array too
  void* bias = carver.Take<std::byte>(spec.out_features * element);
  void* run_sums =  // for dbias
      carver.Take<std::byte>(RunSumsBytes(spec.out_features, kPackWidth<Bfloat16>, 1));
  // For a gradient whose array is not aligned as the library needs.
  void* dweight = carver.Take<float>(weights);
};

template <class T, int kWidth>
struct Elements {
  const T* x;
  uint32_t channels;

  __device__ void Begin(uint32_t channel) { x += channel; }
  __device__ void Add(size_t pixel, float (&sums)[1][kWidth]) const {
    float values[kWidth];
    LoadFloats<kWidth>(x + pixel * channels, values);
    for (int k = 0; k < kWidth; ++k) sums[0][k] += values[k];
  }
};

}  // namespace

void SumElements(CudaDevice& gpu, size_t pixels, uint32_t channels, const void* x, float* sums,
                 void* run_sums) {
  WithPacks(gpu.element(), channels, [&]<class T, int kWidth>() {
    SumColumns<1, kWidth>(gpu, pixels, channels,
                          Elements<T, kWidth>{static_cast<const T*>(x), channels},
                          StoreTotals<1>{sums, channels}, static_cast<float*>(run_sums));
  });
}

size_t LinearScratchBytes(CudaDevice& gpu, const LinearSpec& spec, uint32_t) {
  return Scratch{gpu, spec}.carver.used_bytes();
}

void LinearForward(CudaDevice& gpu, const LinearSpec& spec, const LinearForwardArgs& args,
                   std::span<std::byte> scratch) {
  const Scratch s{gpu, spec, ScratchCarver(scratch)};
  ToElements(gpu, s.weights, args.weight, s.weight);
  if (args.bias != nullptr) ToElements(gpu, spec.out_features, args.bias, s.bias);
  gpu.matrices().Run({.rows = args.sample_count,
                      .cols = spec.out_features,
                      .depth = spec.in_features,
                      .b_transposed = true,
                      .has_bias = args.bias != nullptr,
                      .has_relu = spec.relu},
                     {.a = args.x, .b = s.weight, .bias = s.bias, .c = args.y});
}

void LinearBackward(CudaDevice& gpu, const LinearSpec& spec, const LinearBackwardArgs& args,
                    std::span<std::byte> scratch) {
  const Scratch s{gpu, spec, ScratchCarver(scratch)};
  const size_t outputs = size_t{args.sample_count} * spec.out_features;
  if (spec.relu) ActivationBackward(gpu, outputs, args.y, Activation::kRelu, args.dy, args.dy);
  if (args.dbias != nullptr) {
    SumElements(gpu, args.sample_count, spec.out_features, args.dy, args.dbias, s.run_sums);
  }
  void* const dweight = IsAligned(args.dweight) ? args.dweight : s.dweight;
  gpu.matrices().Run({.rows = spec.out_features,  // dweight = dyᵀ · x
                      .cols = spec.in_features,
                      .depth = args.sample_count,
                      .a_transposed = true,
                      .is_float = true},
                     {.a = args.dy, .b = args.x, .c = dweight});
  if (dweight != args.dweight) {
    PANDO_CUDA_CHECK(cudaMemcpyAsync(args.dweight, dweight, s.weights * sizeof(float),
                                     cudaMemcpyDeviceToDevice, gpu.stream()));
  }
  if (args.dx == nullptr) return;
  ToElements(gpu, s.weights, args.weight, s.weight);
  gpu.matrices().Run({.rows = args.sample_count,  // dx = dy · weight
                      .cols = spec.in_features,
                      .depth = spec.out_features},
                     {.a = args.dy, .b = s.weight, .c = args.dx});
}

}  // namespace pando::cuda
