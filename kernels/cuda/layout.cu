#include "kernels/cuda/layout.h"

#include <algorithm>
#include <span>
#include <vector>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/map.h"

namespace pando::cuda {
namespace {

struct KeepOne {
  __device__ float operator()(const float (&x)[1]) const { return x[0]; }
};

constexpr uint32_t kTile = 32, kTileRows = 8;

// y[b][column][row] = x[b][row][column], in tiles through shared memory: both sides are read and
// written along their rows. A tile has one extra column, so that no two elements of a column share
// a bank.
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
void Transpose(CudaDevice& gpu, uint32_t batch_count, uint32_t rows, uint32_t columns,
               const void* x, void* y) {
  const uint32_t depth = std::min(batch_count, kGridMax);
  Launch(gpu, dim3(DivideUp(columns, kTile), DivideUp(rows, kTile), depth), dim3(kTile, kTileRows),
         TransposeKernel<In, Out>, rows, columns, batch_count, x, y);
}

template <class In, class Out>
void Convert(CudaDevice& gpu, size_t count, const In* x, Out* y) {
  if (IsAligned(x) && IsAligned(y)) return Map<kPackWidth<float>>(gpu, count, KeepOne(), y, x);
  Map<1>(gpu, count, KeepOne(), y, x);
}

// A filter has so few taps that a tile of the transposition would be mostly empty. So a block
// handles up to kFilterChannels channels of one filter with all their taps. These are adjacent on
// one side, and tap by tap on the other.
constexpr uint32_t kFilterTaps = 49, kFilterChannels = 64;

// Converts [out, channels, taps] to [out, taps, channels].
template <class T>
__global__ void TapsOutside(uint32_t channels, uint32_t taps, const float* x, T* y) {
  __shared__ float filter[kFilterChannels * kFilterTaps];  // [channels, taps]
  const size_t first = size_t{blockIdx.x} * channels * taps;
  const uint32_t channel = blockIdx.y * kFilterChannels;
  const uint32_t width = min(kFilterChannels, channels - channel);
  for (uint32_t i = threadIdx.x; i < width * taps; i += blockDim.x)
    filter[i] = x[first + size_t{channel} * taps + i];
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < width * taps; i += blockDim.x) {
    const uint32_t tap = i / width, c = i % width;
    y[first + size_t{tap} * channels + channel + c] = FromFloat<T>(filter[c * taps + tap]);
  }
}

// Converts [out, taps, channels] to [out, channels, taps].
template <class T>
__global__ void TapsInside(uint32_t channels, uint32_t taps, const T* x, float* y) {
  __shared__ float filter[kFilterChannels * kFilterTaps];  // [channels, taps]
  const size_t first = size_t{blockIdx.x} * channels * taps;
  const uint32_t channel = blockIdx.y * kFilterChannels;
  const uint32_t width = min(kFilterChannels, channels - channel);
  for (uint32_t i = threadIdx.x; i < width * taps; i += blockDim.x) {
    const uint32_t tap = i / width, c = i % width;
    filter[c * taps + tap] = ToFloat(x[first + size_t{tap} * channels + channel + c]);
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < width * taps; i += blockDim.x)
    y[first + size_t{channel} * taps + i] = filter[i];
}

// Converts [out, channels, taps] to [out, taps, stored], with zeros. Such filters are small, so
// each element has one thread. `count` is the result's size.
template <class T>
__global__ void PadFilter(uint32_t count, uint32_t channels, uint32_t stored, uint32_t taps,
                          const float* x, T* y) {
  const auto i = static_cast<uint32_t>(ThreadIndex());
  if (i >= count) return;
  const uint32_t c = i % stored, tap = i / stored % taps, out = i / stored / taps;
  y[i] = FromFloat<T>(c < channels ? x[(out * channels + c) * taps + tap] : 0.0f);
}

// Converts [out, taps, stored] to [out, channels, taps], without the zeros.
template <class T>
__global__ void TrimFilter(uint32_t count, uint32_t channels, uint32_t stored, uint32_t taps,
                           const T* x, float* y) {
  const auto i = static_cast<uint32_t>(ThreadIndex());
  if (i >= count) return;
  const uint32_t tap = i % taps, c = i / taps % channels, out = i / taps / channels;
  y[i] = ToFloat(x[(out * taps + tap) * stored + c]);
}

// ----------------------------------------------------------------------------- the network's input

constexpr uint32_t kSharedChannels = 4;
constexpr uint32_t kByteValues = 256;  // per channel

// Loads kWidth bytes of the input from the i-th on, or all that exist, each one `copies` times.
template <int kWidth>
__device__ void LoadBytes(const uint8_t* bytes, size_t i, size_t count, uint32_t copies,
                          uint8_t (&to)[kWidth]) {
  if (copies == 1 && count - i >= kWidth) {
    const Pack<uint8_t, kWidth> pack = LoadPack<kWidth>(bytes + i);
    for (int k = 0; k < kWidth; ++k) to[k] = pack.at[k];
    return;
  }
  for (int k = 0; k < kWidth; ++k) to[k] = i + k < count ? bytes[(i + k) / copies] : uint8_t{0};
}

// Returns the table of byte values, in shared memory if it fits there: two divisions per element
// would take longer than loading its bytes. All threads of a block call this function.
__device__ const float* SharedByteValues(uint32_t channels, const float* byte_values,
                                         float* shared) {
  if (channels > kSharedChannels) return byte_values;
  for (uint32_t i = threadIdx.x; i < channels * kByteValues; i += blockDim.x)
    shared[i] = byte_values[i];
  __syncthreads();
  return shared;
}

// Imports pictures that are not moved. One channel may be repeated `copies` times. `count` is the
// result's size.
template <class T>
__global__ void ImportPictures(size_t count, uint32_t channels, uint32_t copies,
                               const uint8_t* bytes, const float* byte_values, T* y) {
  constexpr int kWidth = kPackWidth<T>;
  __shared__ float shared[kSharedChannels * kByteValues];
  byte_values = SharedByteValues(channels, byte_values, shared);
  const size_t step = size_t{gridDim.x} * blockDim.x * kWidth;
  for (size_t i = ThreadIndex() * kWidth; i < count; i += step) {
    uint8_t some[kWidth];
    LoadBytes<kWidth>(bytes, i, count, copies, some);
    float values[kWidth];
    auto channel = static_cast<uint32_t>(i % channels);
    for (int k = 0; k < kWidth; ++k) {
      values[k] = byte_values[channel * kByteValues + some[k]];
      channel = channel + 1 == channels ? 0 : channel + 1;
    }
    StoreSome<kWidth>(values, count - i, y + i);
  }
}

// Visits the elements of moved pictures, [sample, y, x, channel], each channel `copies` times.
class MovedPictures {
 public:
  __device__ MovedPictures(const DeviceBatch& batch, uint32_t copies, size_t element)
      : batch_(batch), copies_(copies) {
    const uint32_t width = batch.shape.width, channels = batch.shape.channels * copies;
    channel_ = static_cast<uint32_t>(element % channels);
    const size_t pixel = element / channels;
    x_ = static_cast<uint32_t>(pixel % width);
    const size_t row = pixel / width;
    y_ = static_cast<uint32_t>(row % batch.shape.height);
    sample_ = static_cast<uint32_t>(row / batch.shape.height);
    Find();
  }
  __device__ uint32_t channel() const { return channel_ / copies_; }
  __device__ uint8_t byte() const { return source_ == nullptr ? uint8_t{0} : source_[channel()]; }
  __device__ void Next() {
    if (++channel_ < batch_.shape.channels * copies_) return;
    channel_ = 0;
    if (++x_ == batch_.shape.width) {
      x_ = 0;
      if (++y_ == batch_.shape.height) {
        y_ = 0;
        ++sample_;
      }
    }
    Find();
  }

 private:
  __device__ void Find() {
    source_ = nullptr;
    if (sample_ >= batch_.sample_count) return;
    const SampleShape& shape = batch_.shape;
    const int64_t pixel = SourcePixel(shape, batch_.moves[sample_], y_, x_);
    if (pixel >= 0)
      source_ = batch_.bytes + sample_ * shape.size() + static_cast<size_t>(pixel) * shape.channels;
  }

  const DeviceBatch& batch_;
  const uint32_t copies_;
  uint32_t sample_, y_, x_, channel_;
  const uint8_t* source_;  // the pixel's channels; null if the pixel is black
};

template <class T>
__global__ void ImportMovedPictures(DeviceBatch batch, uint32_t copies, T* y) {
  constexpr int kWidth = kPackWidth<T>;
  __shared__ float shared[kSharedChannels * kByteValues];
  const float* byte_values = SharedByteValues(batch.shape.channels, batch.byte_values, shared);
  const size_t count = batch.sample_count * batch.shape.size() * copies;
  const size_t step = size_t{gridDim.x} * blockDim.x * kWidth;
  for (size_t i = ThreadIndex() * kWidth; i < count; i += step) {
    MovedPictures at(batch, copies, i);
    float values[kWidth];
    for (int k = 0; k < kWidth; ++k, at.Next())
      values[k] = byte_values[at.channel() * kByteValues + at.byte()];
    StoreSome<kWidth>(values, count - i, y + i);
  }
}

// Imports with zeros in the last stored channels. One thread has all channels of a pixel.
template <class T>
__global__ void ImportPadded(DeviceBatch batch, uint32_t channels, T* y) {
  constexpr int kWidth = kPackWidth<T>;
  const uint32_t width = batch.shape.width, size = batch.shape.height * width;
  const uint32_t own = batch.shape.channels, copies = channels / own;
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = ThreadIndex(); i < size_t{batch.sample_count} * size; i += step) {
    const size_t sample = i / size;
    const auto pixel = static_cast<uint32_t>(i % size);
    const PictureMove move = batch.moves == nullptr ? PictureMove{} : batch.moves[sample];
    const int64_t source = SourcePixel(batch.shape, move, pixel / width, pixel % width);
    const size_t from = (sample * size + static_cast<size_t>(source)) * own;
    float values[kWidth] = {};
    for (uint32_t k = 0; k < channels; ++k) {
      const uint32_t c = k / copies;
      values[k] = batch.values != nullptr
                      ? batch.values[from + c]
                      : batch.byte_values[c * kByteValues +
                                          (source < 0 ? uint8_t{0} : batch.bytes[from + c])];
    }
    StoreFloats<kWidth>(values, y + i * kWidth);
  }
}

template <class T>
__global__ void CopyValues(size_t count, uint32_t copies, const float* values, T* y) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = ThreadIndex(); i < count; i += step) {
    for (uint32_t k = 0; k < copies; ++k) y[i * copies + k] = FromFloat<T>(values[i]);
  }
}

template <class T>
void ImportSamples(CudaDevice& gpu, const DeviceBatch& batch, uint32_t channels, void* x) {
  const uint32_t copies = channels / batch.shape.channels;
  const size_t count = batch.sample_count * batch.shape.size();
  if (batch.moves != nullptr) {
    Launch(gpu, GridSize(gpu, count * copies, kPackWidth<T>), dim3(kMapThreads),
           ImportMovedPictures<T>, batch, copies, x);
  } else if (batch.bytes != nullptr) {
    Launch(gpu, GridSize(gpu, count * copies, kPackWidth<T>), dim3(kMapThreads), ImportPictures<T>,
           count * copies, batch.shape.channels, copies, batch.bytes, batch.byte_values, x);
  } else {
    Launch(gpu, GridSize(gpu, count, 1), dim3(kMapThreads), CopyValues<T>, count, copies,
           batch.values, x);
  }
}

template <class T>
const T* UploadArray(CudaDevice& gpu, const T* host, size_t count) {
  if (host == nullptr) return nullptr;
  return static_cast<const T*>(gpu.staging().Upload(std::as_bytes(std::span(host, count))));
}

}  // namespace

void ToElements(CudaDevice& gpu, size_t count, const float* x, void* y) {
  WithElement(gpu.element(), [&]<class T>() { Convert(gpu, count, x, static_cast<T*>(y)); });
}

void ToFloats(CudaDevice& gpu, size_t count, const void* x, float* y) {
  WithElement(gpu.element(), [&]<class T>() { Convert(gpu, count, static_cast<const T*>(x), y); });
}

void FilterToElements(CudaDevice& gpu, const Conv2dSpec& spec, const Conv2dSpec& stored,
                      const float* x, void* y) {
  const uint32_t out = spec.out_channels, channels = spec.input.channels / spec.groups,
                 taps = spec.kernel * spec.kernel;
  if (const size_t count = stored.weight_size(); count != spec.weight_size()) {
    return WithSmallElement(gpu.element(), [&]<class T>() {
      Launch(gpu, dim3(DivideUp(count, kMapThreads)), dim3(kMapThreads), PadFilter<T>, count,
             channels, stored.input.channels, taps, x, y);
    });
  }
  if (taps == 1 || channels == 1) return ToElements(gpu, spec.weight_size(), x, y);
  WithElement(gpu.element(), [&]<class T>() {
    if (taps > kFilterTaps) return Transpose<float, T>(gpu, out, channels, taps, x, y);
    Launch(gpu, dim3(out, DivideUp(channels, kFilterChannels)), dim3(kMapThreads), TapsOutside<T>,
           channels, taps, x, y);
  });
}

void FilterToFloats(CudaDevice& gpu, const Conv2dSpec& spec, const Conv2dSpec& stored,
                    const void* x, float* y) {
  const uint32_t out = spec.out_channels, channels = spec.input.channels / spec.groups,
                 taps = spec.kernel * spec.kernel;
  if (const size_t count = spec.weight_size(); count != stored.weight_size()) {
    return WithSmallElement(gpu.element(), [&]<class T>() {
      Launch(gpu, dim3(DivideUp(count, kMapThreads)), dim3(kMapThreads), TrimFilter<T>, count,
             channels, stored.input.channels, taps, x, y);
    });
  }
  if (taps == 1 || channels == 1) return ToFloats(gpu, spec.weight_size(), x, y);
  WithElement(gpu.element(), [&]<class T>() {
    if (taps > kFilterTaps) return Transpose<T, float>(gpu, out, taps, channels, x, y);
    Launch(gpu, dim3(out, DivideUp(channels, kFilterChannels)), dim3(kMapThreads), TapsInside<T>,
           channels, taps, x, y);
  });
}

void TransposeFloats(CudaDevice& gpu, uint32_t rows, uint32_t columns, const float* x, float* y) {
  Transpose<float, float>(gpu, 1, rows, columns, x, y);
}

void TransposeSamples(CudaDevice& gpu, uint32_t sample_count, uint32_t rows, uint32_t columns,
                      const void* x, void* y) {
  WithElement(gpu.element(),
              [&]<class T>() { Transpose<T, T>(gpu, sample_count, rows, columns, x, y); });
}

DeviceBatch UploadBatch(CudaDevice& gpu, const DeviceBatch& host) {
  const size_t count = host.sample_count * host.shape.size();
  DeviceBatch there = host;
  there.labels = UploadArray(gpu, host.labels, host.sample_count);
  there.byte_values = UploadArray(gpu, host.byte_values, kByteValues * host.shape.channels);
  there.bytes = UploadArray(gpu, host.bytes, count);
  there.moves = UploadArray(gpu, host.moves, host.sample_count);
  there.values = UploadArray(gpu, host.values, count);
  return there;
}

void ImportBatch(CudaDevice& gpu, const DeviceBatch& batch, uint32_t channels,
                 uint32_t stored_channels, void* x, int32_t* labels) {
  PANDO_CUDA_CHECK(cudaMemcpyAsync(labels, batch.labels, batch.sample_count * sizeof(int32_t),
                                   cudaMemcpyDeviceToDevice, gpu.stream()));
  if (stored_channels == channels) {
    return WithElement(gpu.element(),
                       [&]<class T>() { ImportSamples<T>(gpu, batch, channels, x); });
  }
  WithSmallElement(gpu.element(), [&]<class T>() {
    PANDO_CHECK(stored_channels == kPackWidth<T>);
    const size_t pixels = size_t{batch.sample_count} * batch.shape.height * batch.shape.width;
    Launch(gpu, GridSize(gpu, pixels, 1), dim3(kMapThreads), ImportPadded<T>, batch, channels, x);
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
