// Operations on separate elements: bound by memory, so each thread moves 16 bytes at a time.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/map.h"
#include "kernels/cuda/philox.h"

namespace pando::cuda {
namespace {

struct ActivateOne {
  Activation activation;
  __device__ float operator()(const float (&x)[1]) const { return Activate(activation, x[0]); }
};
struct PassOne {  // of y, dy
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
struct ScaleOne {
  float factor;
  __device__ float operator()(const float (&x)[1]) const { return x[0] * factor; }
};

void Activation1(CudaDevice& gpu, size_t count, const void* x, Activation activation, void* y) {
  WithElement(gpu.element(), [&]<class T>() {
    Map<T, 1>(gpu, count, {static_cast<const T*>(x)}, static_cast<T*>(y), ActivateOne{activation});
  });
}

void Gradient1(CudaDevice& gpu, size_t count, const void* y, Activation activation, const void* dy,
               void* dx) {
  WithElement(gpu.element(), [&]<class T>() {
    Map<T, 2>(gpu, count, {static_cast<const T*>(y), static_cast<const T*>(dy)},
              static_cast<T*>(dx), PassOne{activation});
  });
}

}  // namespace

void ReluForward(CudaDevice& gpu, size_t count, const void* x, void* y) {
  Activation1(gpu, count, x, Activation::kRelu, y);
}
void ReluBackward(CudaDevice& gpu, size_t count, const void* y, const void* dy, void* dx) {
  Gradient1(gpu, count, y, Activation::kRelu, dy, dx);
}
void Relu6Forward(CudaDevice& gpu, size_t count, const void* x, void* y) {
  Activation1(gpu, count, x, Activation::kRelu6, y);
}
void Relu6Backward(CudaDevice& gpu, size_t count, const void* y, const void* dy, void* dx) {
  Gradient1(gpu, count, y, Activation::kRelu6, dy, dx);
}

void AddForward(CudaDevice& gpu, size_t count, const void* a, const void* b, Activation activation,
                void* y) {
  WithElement(gpu.element(), [&]<class T>() {
    Map<T, 2>(gpu, count, {static_cast<const T*>(a), static_cast<const T*>(b)}, static_cast<T*>(y),
              AddTwo{activation});
  });
}

void AddBackward(CudaDevice& gpu, size_t count, const void* y, Activation activation,
                 const void* dy, void* dx) {
  if (activation == Activation::kNone) return Copy(gpu, count, dy, dx);
  Gradient1(gpu, count, y, activation, dy, dx);
}

void AddInPlace(CudaDevice& gpu, size_t count, const void* x, void* y) {
  AddForward(gpu, count, y, x, Activation::kNone, y);
}

void Copy(CudaDevice& gpu, size_t count, const void* x, void* y) {
  if (x == y) return;
  PANDO_CUDA_CHECK(cudaMemcpyAsync(y, x, count * ElementBytes(gpu.element()),
                                   cudaMemcpyDeviceToDevice, gpu.stream()));
}

void ScaleFloats(CudaDevice& gpu, size_t count, const float* x, float factor, float* y) {
  // Parameters and their gradients may begin at any float: one float at a time.
  MapUnaligned<1>(gpu, count, Inputs<float, 1>{x}, y, ScaleOne{factor});
}

namespace {

size_t FloatsToAlignment(const float* x) {
  return (16 - reinterpret_cast<uintptr_t>(x) % 16) % 16 / sizeof(float);
}

struct ScaleOneBy {
  const float* factor;
  __device__ float operator()(const float (&x)[1]) const { return x[0] * *factor; }
};

}  // namespace

void ScaleFloatsInPlace(CudaDevice& gpu, size_t count, const float* factor, float* x) {
  const size_t head = std::min(count, FloatsToAlignment(x));
  if (head > 0) MapUnaligned<1>(gpu, head, Inputs<float, 1>{x}, x, ScaleOneBy{factor});
  if (head == count) return;
  Map<float, 1>(gpu, count - head, {x + head}, x + head, ScaleOneBy{factor});
}

namespace {

// One float per thread at the unaligned ends of `count`, four in between.
__global__ void AddFloatsKernel(size_t head, size_t count, const float* x, float* y) {
  const size_t body_end = head + (count - head) / 4 * 4;
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = head + 4 * ThreadIndex(); i < body_end; i += 4 * stride) {
    const float4 a = *reinterpret_cast<const float4*>(x + i);
    float4 b = *reinterpret_cast<float4*>(y + i);
    b.x += a.x;
    b.y += a.y;
    b.z += a.z;
    b.w += a.w;
    *reinterpret_cast<float4*>(y + i) = b;
  }
  const size_t left_out = ThreadIndex();
  if (left_out < head) y[left_out] += x[left_out];
  if (body_end + left_out < count && left_out < 4) y[body_end + left_out] += x[body_end + left_out];
}

}  // namespace

void AddFloats(CudaDevice& gpu, size_t count, const float* x, float* y) {
  const size_t head = std::min(count, FloatsToAlignment(y));
  if (FloatsToAlignment(x) == FloatsToAlignment(y)) {
    Launch(gpu, GridSize(gpu, count, 4), dim3(kMapThreads), AddFloatsKernel, head, count, x, y);
  } else {
    MapUnaligned<2>(gpu, count, Inputs<float, 2>{x, y}, y, AddTwo{Activation::kNone});
  }
}

// ---------------------------------------------------------------------------------------- factors

namespace {

template <class T>
__global__ void MultiplyKernel(size_t count, const T* x, const float* factor, T* y) {
  constexpr int kWidth = kPackWidth<T>;
  const size_t step = size_t{gridDim.x} * blockDim.x * kWidth;
  for (size_t i = ThreadIndex() * kWidth; i < count; i += step) {
    float values[kWidth], factors[kWidth];
    LoadSome<kWidth>(x + i, count - i, values);
    LoadSome<kWidth>(factor + i, count - i, factors);
    for (int k = 0; k < kWidth; ++k) values[k] *= factors[k];
    StoreSome<kWidth>(values, count - i, y + i);
  }
}

// One block row per sample; one thread has kWidth channels of a pixel.
template <class T, int kWidth>
__global__ void MultiplyChannelsKernel(uint32_t sample_size, uint32_t channels, const T* x,
                                       const float* factor, T* y) {
  x += size_t{blockIdx.y} * sample_size;
  y += size_t{blockIdx.y} * sample_size;
  factor += size_t{blockIdx.y} * channels;
  const uint32_t columns = channels / kWidth;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < sample_size / kWidth;
       i += gridDim.x * blockDim.x) {
    float values[kWidth], factors[kWidth];
    LoadFloats<kWidth>(x + i * kWidth, values);
    LoadFloats<kWidth>(factor + i % columns * kWidth, factors);
    for (int k = 0; k < kWidth; ++k) values[k] *= factors[k];
    StoreFloats<kWidth>(values, y + i * kWidth);
  }
}

__global__ void DropoutKernel(PhiloxKey2 key, const PassNumbers* numbers, uint32_t threshold,
                              float keep_scale, size_t count, float* factor) {
  constexpr int kPerBlock = 8;
  const uint64_t step = numbers->step;
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t block = ThreadIndex(); block * kPerBlock < count; block += stride) {
    const uint4 bits =
        Philox4x32(make_uint4(static_cast<uint32_t>(block), static_cast<uint32_t>(step),
                              static_cast<uint32_t>(step >> 32), numbers->micro_batch),
                   key);
    const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
    float factors[kPerBlock];
    for (int i = 0; i < kPerBlock; ++i) {
      const uint32_t uniform = words[i / 2] >> (16 * (i % 2)) & 0xffff;
      factors[i] = uniform >= threshold ? keep_scale : 0.0f;
    }
    StoreSome<4>(*reinterpret_cast<float(*)[4]>(factors), count - block * kPerBlock,
                 factor + block * kPerBlock);
    if (block * kPerBlock + 4 >= count) continue;
    StoreSome<4>(*reinterpret_cast<float(*)[4]>(factors + 4), count - block * kPerBlock - 4,
                 factor + block * kPerBlock + 4);
  }
}

}  // namespace

void Multiply(CudaDevice& gpu, size_t count, const void* x, const float* factor, void* y) {
  WithElement(gpu.element(), [&]<class T>() {
    Launch(gpu, GridSize(gpu, count, kPackWidth<T>), dim3(kMapThreads), MultiplyKernel<T>, count,
           static_cast<const T*>(x), factor, static_cast<T*>(y));
  });
}

void MultiplyChannels(CudaDevice& gpu, uint32_t sample_count, const SampleShape& shape,
                      const void* x, const float* factor, void* y) {
  WithElement(gpu.element(), [&]<class T>() {
    const auto size = static_cast<uint32_t>(shape.size());
    WithWidth<T>(shape.channels, [&]<int kWidth>() {
      Launch(gpu, SampleGrid(size, kWidth, sample_count), dim3(kMapThreads),
             MultiplyChannelsKernel<T, kWidth>, size, shape.channels, static_cast<const T*>(x),
             factor, static_cast<T*>(y));
    });
  });
}

void DropoutFactors(CudaDevice& gpu, PhiloxKey key, const PassNumbers* numbers, float probability,
                    size_t count, float* factor) {
  const auto threshold = static_cast<uint32_t>(std::lround(probability * 65536.0f));
  Launch(gpu, GridSize(gpu, count, 8), dim3(kMapThreads), DropoutKernel, PhiloxKey2{key[0], key[1]},
         numbers, threshold, 1.0f / (1.0f - probability), count, factor);
}

}  // namespace pando::cuda
