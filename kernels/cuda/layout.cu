#include "kernels/cuda/layout.h"

#include <algorithm>
#include <vector>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/map.h"

namespace pando::cuda {
namespace {

struct Same {
  __device__ float operator()(const float (&x)[1]) const { return x[0]; }
};

constexpr uint32_t kTile = 32, kTileRows = 8;

// y[b][column][row] = x[b][row][column], by tiles that pass through shared memory: both sides are
// read and written along their rows. One column more than a tile has: no two of a column's elements
// share a bank.
template <class In, class Out>
__global__ void TransposeKernel(uint32_t rows, uint32_t columns, uint32_t batch_count, const In* x,
                                Out* y) {
  __shared__ float tile[kTile][kTile + 1];
  const uint32_t column = blockIdx.x * kTile, row = blockIdx.y * kTile;
  for (uint32_t b = blockIdx.z; b < batch_count; b += gridDim.z) {
    const size_t first = size_t{b} * rows * columns;
    for (uint32_t i = threadIdx.y; i < kTile; i += kTileRows) {
      if (row + i >= rows || column + threadIdx.x >= columns) continue;
      tile[i][threadIdx.x] = ToFloat(x[first + size_t{row + i} * columns + column + threadIdx.x]);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.y; i < kTile; i += kTileRows) {
      if (column + i >= columns || row + threadIdx.x >= rows) continue;
      y[first + size_t{column + i} * rows + row + threadIdx.x] =
          FromFloat<Out>(tile[threadIdx.x][i]);
    }
    __syncthreads();
  }
}

template <class In, class Out>
void Transpose(CudaDevice& gpu, uint32_t batch_count, uint32_t rows, uint32_t columns, const In* x,
               Out* y) {
  constexpr uint32_t kGridDepthMax = 65535;
  Launch(gpu,
         dim3(DivideUp(columns, kTile), DivideUp(rows, kTile),
              batch_count < kGridDepthMax ? batch_count : kGridDepthMax),
         dim3(kTile, kTileRows), TransposeKernel<In, Out>, rows, columns, batch_count, x, y);
}

// ------------------------------------------------------------------------------------ the
// network's input

// Repeats what has one channel.
struct Channels {
  uint32_t in;
  uint32_t out;
  __device__ uint32_t Of(size_t element) const {
    return in == 1 ? 0 : static_cast<uint32_t>(element % in);
  }
};

// In PyTorch's order of operations: ToTensor's division, then Normalize. statistics: means, then
// deviations, of each channel.
template <class T>
__global__ void NormalisePictures(size_t count, Channels channels, const uint8_t* bytes,
                                  const float* statistics, T* y) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  const uint32_t copies = channels.out / channels.in;
  for (size_t i = ThreadIndex(); i < count; i += step) {
    const uint32_t c = channels.Of(i);
    const float value =
        (static_cast<float>(bytes[i]) / 255.0f - statistics[c]) / statistics[channels.in + c];
    for (uint32_t k = 0; k < copies; ++k) y[i * copies + k] = FromFloat<T>(value);
  }
}

template <class T>
__global__ void CopyValues(size_t count, uint32_t copies, const float* values, T* y) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = ThreadIndex(); i < count; i += step) {
    for (uint32_t k = 0; k < copies; ++k) y[i * copies + k] = FromFloat<T>(values[i]);
  }
}

std::vector<float> StatisticsOf(const Batch& batch) {
  const size_t channels = batch.shape.channels;
  std::vector<float> statistics(2 * channels, 0.0f);
  std::fill_n(statistics.begin() + static_cast<std::ptrdiff_t>(channels), channels, 1.0f);
  if (batch.normalisation == nullptr) return statistics;
  std::copy_n(batch.normalisation->mean.begin(), channels, statistics.begin());
  std::copy_n(batch.normalisation->stddev.begin(), channels,
              statistics.begin() + static_cast<std::ptrdiff_t>(channels));
  return statistics;
}

template <class T>
void ImportPictures(CudaDevice& gpu, const Batch& batch, const Channels& channels, T* x) {
  const std::vector<float> host_statistics = StatisticsOf(batch);
  const void* statistics = gpu.staging().Upload(std::as_bytes(std::span(host_statistics)));
  const void* bytes = gpu.staging().Upload(std::as_bytes(std::span(batch.bytes)));
  Launch(gpu, GridSize(gpu, batch.bytes.size(), 1), dim3(kMapThreads), NormalisePictures<T>,
         batch.bytes.size(), channels, static_cast<const uint8_t*>(bytes),
         static_cast<const float*>(statistics), x);
}

template <class T>
void ImportValues(CudaDevice& gpu, const Batch& batch, const Channels& channels, T* x) {
  const void* values = gpu.staging().Upload(std::as_bytes(std::span(batch.values)));
  Launch(gpu, GridSize(gpu, batch.values.size(), 1), dim3(kMapThreads), CopyValues<T>,
         batch.values.size(), channels.out / channels.in, static_cast<const float*>(values), x);
}

}  // namespace

void ToElements(CudaDevice& gpu, size_t count, const float* x, void* y) {
  WithElement(gpu.element(), [&]<class T>() {
    MapUnaligned<1>(gpu, count, Inputs<float, 1>{x}, static_cast<T*>(y), Same());
  });
}

void ToFloats(CudaDevice& gpu, size_t count, const void* x, float* y) {
  WithElement(gpu.element(), [&]<class T>() {
    MapUnaligned<1>(gpu, count, Inputs<T, 1>{static_cast<const T*>(x)}, y, Same());
  });
}

void FilterToElements(CudaDevice& gpu, uint32_t out, uint32_t channels, uint32_t taps,
                      const float* x, void* y) {
  if (taps == 1 || channels == 1) return ToElements(gpu, size_t{out} * channels * taps, x, y);
  WithElement(gpu.element(),
              [&]<class T>() { Transpose(gpu, out, channels, taps, x, static_cast<T*>(y)); });
}

void FilterToFloats(CudaDevice& gpu, uint32_t out, uint32_t channels, uint32_t taps, const void* x,
                    float* y) {
  if (taps == 1 || channels == 1) return ToFloats(gpu, size_t{out} * channels * taps, x, y);
  WithElement(gpu.element(),
              [&]<class T>() { Transpose(gpu, out, taps, channels, static_cast<const T*>(x), y); });
}

void TransposeFloats(CudaDevice& gpu, uint32_t rows, uint32_t columns, const float* x, float* y) {
  Transpose(gpu, 1, rows, columns, x, y);
}

void FlattenForward(CudaDevice& gpu, uint32_t sample_count, const SampleShape& shape, const void* x,
                    void* y) {
  WithElement(gpu.element(), [&]<class T>() {
    Transpose(gpu, sample_count, shape.height * shape.width, shape.channels,
              static_cast<const T*>(x), static_cast<T*>(y));
  });
}

void FlattenBackward(CudaDevice& gpu, uint32_t sample_count, const SampleShape& shape,
                     const void* dy, void* dx) {
  WithElement(gpu.element(), [&]<class T>() {
    Transpose(gpu, sample_count, shape.channels, shape.height * shape.width,
              static_cast<const T*>(dy), static_cast<T*>(dx));
  });
}

void ImportBatch(CudaDevice& gpu, const Batch& batch, uint32_t channels, void* x, int32_t* labels) {
  const Channels counts{batch.shape.channels, channels};
  gpu.staging().Upload(std::as_bytes(std::span(batch.labels)), labels);
  WithElement(gpu.element(), [&]<class T>() {
    batch.bytes.empty() ? ImportValues(gpu, batch, counts, static_cast<T*>(x))
                        : ImportPictures(gpu, batch, counts, static_cast<T*>(x));
  });
}

void ExportFloats(CudaDevice& gpu, size_t count, const void* x, float* host) {
  if (gpu.element() == ElementType::kFloat32) {
    return Download(gpu, x, std::as_writable_bytes(std::span(host, count)));
  }
  std::vector<std::byte> elements(count * ElementBytes(gpu.element()));
  Download(gpu, x, elements);
  WithElement(gpu.element(), [&]<class T>() {
    const T* from = reinterpret_cast<const T*>(elements.data());
    for (size_t i = 0; i < count; ++i) host[i] = static_cast<float>(from[i]);
  });
}

}  // namespace pando::cuda
