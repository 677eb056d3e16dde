// Operations on single elements. They are bound by memory, so each thread moves 16 bytes at a time.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/map.h"

namespace pando::cuda {
namespace {

struct ActivateOne {
  Activation activation;
  __device__ float operator()(const float (&x)[1]) const { return Activate(activation, x[0]); }
};
struct PassOne {  // for y and dy
  Activation activation;
  __device__ float operator()(const float (&x)[2]) const {
    return PassGradient(activation, x[0], x[1]);
  }
};
struct AddTwo {
  Activation activation;
  __device__ float operator()(const float (&x)[2]) const {
    return Activate(activation, x[0] + x[1]);
  }
};
struct MultiplyTwo {
  __device__ float operator()(const float (&x)[2]) const { return x[0] * x[1]; }
};
struct ScaleOne {
  float factor;
  __device__ float operator()(const float (&x)[1]) const { return x[0] * factor; }
};
struct ScaleOneBy {
  const float* factor;
  __device__ float operator()(const float (&x)[1]) const { return x[0] * *factor; }
};

// Maps over elements of type T.
template <class T, class F, class... Inputs>
void MapElements(CudaDevice& gpu, size_t count, F f, void* y, const Inputs*... x) {
  Map<kPackWidth<T>>(gpu, count, f, static_cast<T*>(y), static_cast<const T*>(x)...);
}

}  // namespace

void ActivationForward(CudaDevice& gpu, size_t count, const void* x, Activation activation,
                       void* y) {
  WithElement(gpu.element(),
              [&]<class T>() { MapElements<T>(gpu, count, ActivateOne{activation}, y, x); });
}

void ActivationBackward(CudaDevice& gpu, size_t count, const void* y, Activation activation,
                        const void* dy, void* dx) {
  if (activation == Activation::kNone) return Copy(gpu, count, dy, dx);
  WithElement(gpu.element(),
              [&]<class T>() { MapElements<T>(gpu, count, PassOne{activation}, dx, y, dy); });
}

void AddForward(CudaDevice& gpu, size_t count, const void* a, const void* b, Activation activation,
                void* y) {
  WithElement(gpu.element(),
              [&]<class T>() { MapElements<T>(gpu, count, AddTwo{activation}, y, a, b); });
}

void AddInPlace(CudaDevice& gpu, size_t count, const void* x, void* y) {
  AddForward(gpu, count, y, x, Activation::kNone, y);
}

void Multiply(CudaDevice& gpu, size_t count, const void* x, const float* factor, void* y) {
  PANDO_CHECK(IsAligned(factor));
  WithElement(gpu.element(), [&]<class T>() {
    Map<kPackWidth<T>>(gpu, count, MultiplyTwo(), static_cast<T*>(y), static_cast<const T*>(x),
                       factor);
  });
}

void Copy(CudaDevice& gpu, size_t count, const void* x, void* y) {
  if (x == y) return;
  PANDO_CUDA_CHECK(cudaMemcpyAsync(y, x, count * ElementBytes(gpu.element()),
                                   cudaMemcpyDeviceToDevice, gpu.stream()));
}

void ScaleFloats(CudaDevice& gpu, size_t count, const float* x, float factor, float* y) {
  MapFloats(gpu, count, ScaleOne{factor}, y, x);
}

void ScaleFloatsInPlace(CudaDevice& gpu, size_t count, const float* factor, float* x) {
  MapPackedFloats(gpu, count, ScaleOneBy{factor}, x, x);
}

void AddFloats(CudaDevice& gpu, size_t count, const float* x, float* y) {
  MapFloats(gpu, count, AddTwo{Activation::kNone}, y, x, y);
}

// ---------------------------------------------------------------------------------------- dropout

namespace {

// One block row per sample; one thread has kWidth channels of a pixel.
template <class T, int kWidth>
__global__ void MultiplyChannelsKernel(uint32_t sample_size, uint32_t channels, const T* x,
                                       const float* factor, T* y) {
  const uint32_t i = IndexInSample() * kWidth;
  if (i >= sample_size) return;
  const size_t at = size_t{blockIdx.y} * sample_size + i;
  float values[kWidth], factors[kWidth];
  LoadFloats<kWidth>(x + at, values);
  LoadFloats<kWidth>(factor + size_t{blockIdx.y} * channels + i % channels, factors);
  for (int k = 0; k < kWidth; ++k) values[k] *= factors[k];
  StoreFloats<kWidth>(values, y + at);
}

__global__ void DropoutKernel(PhiloxKey key, const PassNumbers* numbers, uint32_t threshold,
                              float keep_scale, size_t count, float* factor) {
  constexpr int kPerBlock = 8;
  const uint64_t step = numbers->step;
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t block = ThreadIndex(); block * kPerBlock < count; block += stride) {
    const PhiloxBlock bits = Philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(step),
                                         static_cast<uint32_t>(step >> 32), numbers->micro_batch},
                                        key);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const size_t first = block * kPerBlock + half * 4;
      if (first >= count) continue;
      float factors[4];
      for (int i = 0; i < 4; ++i)
        factors[i] = Uniform16(bits, half * 4 + i) >= threshold ? keep_scale : 0.0f;
      StoreSome<4>(factors, count - first, factor + first);
    }
  }
}

}  // namespace

void MultiplyChannels(CudaDevice& gpu, uint32_t sample_count, const SampleShape& shape,
                      const void* x, const float* factor, void* y) {
  PANDO_CHECK(IsAligned(factor));
  const size_t size = shape.size();
  WithPacks(gpu.element(), shape.channels, [&]<class T, int kWidth>() {
    Launch(gpu, SampleGrid(size, size, kWidth, sample_count), dim3(kMapThreads),
           MultiplyChannelsKernel<T, kWidth>, size, shape.channels, x, factor, y);
  });
}

void DropoutFactors(CudaDevice& gpu, PhiloxKey key, const PassNumbers* numbers, float probability,
                    size_t count, float* factor) {
  const auto threshold = static_cast<uint32_t>(std::lround(probability * 65536.0f));
  Launch(gpu, GridSize(gpu, count, 8), dim3(kMapThreads), DropoutKernel, key, numbers, threshold,
         1.0f / (1.0f - probability), count, factor);
}

}  // namespace pando::cuda
