// Sums over pixels, per channel, of arrays [pixels, channels]: for batch norm's statistics and
// gradients, biases and depthwise weights. Two kernels: blocks sum runs of pixels, then one thread
// per channel adds those in fp64. The pixels of a block follow from the shape alone, and every sum
// has a fixed order (P35): there are no atomics.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/map.h"

namespace pando::cuda {

// How the blocks share [pixels, channels]: each thread has kWidth adjacent channels and every
// block_size.y-th pixel of its block's run.
struct ColumnShape {
  size_t pixels = 0;
  uint32_t channels = 0;
  size_t run_pixels = 0;  // per block
  uint32_t run_count = 0;
  dim3 grid_size;
  dim3 block_size;
};

inline constexpr uint32_t kColumnThreads = 256;
// The least number of blocks per multiprocessor, so that enough loads are under way. Constants
// without a register are in its cache.
inline constexpr uint32_t kColumnBlocks = 4;
// Enough blocks to fill a GPU of any size. The number does not depend on the current GPU, because
// sums would then differ.
inline constexpr uint32_t kRunsMax = 1024;

inline ColumnShape PlanColumns(size_t pixels, uint32_t channels, int width,
                               uint32_t blocks_wanted = kRunsMax) {
  ColumnShape shape{.pixels = pixels, .channels = channels};
  const uint32_t columns = DivideUp(channels, static_cast<size_t>(width));
  uint32_t across = 1;
  while (across < columns && across < 32) across *= 2;
  const uint32_t down = kColumnThreads / across;
  const uint32_t column_blocks = DivideUp(columns, across);
  constexpr size_t kPixelsPerThread = 8;  // at least, so that a block's work is worth its launch
  const size_t most_runs = std::max<size_t>(1, pixels / (down * kPixelsPerThread));
  const size_t runs = std::clamp<size_t>(blocks_wanted / column_blocks, 1, most_runs);
  shape.run_pixels = DivideUp(pixels, runs);
  shape.run_count = DivideUp(pixels, shape.run_pixels);
  shape.grid_size = dim3(shape.run_count, column_blocks);
  shape.block_size = dim3(across, down);
  return shape;
}

// Returns the bytes of the blocks' sums, [run, sum, channel], for any number of pixels.
inline size_t RunSumsBytes(uint32_t channels, int width, int sum_count) {
  const size_t columns = (channels + static_cast<size_t>(width) - 1) / static_cast<size_t>(width);
  const size_t column_blocks = (columns + 31) / 32;
  const size_t runs = std::max<size_t>(1, kRunsMax / column_blocks);
  return runs * static_cast<size_t>(sum_count) * channels * sizeof(float);
}

// Returns the first of the thread's channels.
template <int kWidth>
__device__ uint32_t ThreadChannel() {
  return (blockIdx.y * blockDim.x + threadIdx.x) * kWidth;
}

// Each thread has its own `f`. It calls Begin with its channels, and Add for every pixel:
//   f.Begin(channel);  f.Add(pixel, sums);   float sums[kSums][kWidth]
template <int kSums, int kWidth, class F>
__global__ void __launch_bounds__(kColumnThreads, kSums* kWidth <= 16 ? kColumnBlocks : 1)
    SumRuns(ColumnShape shape, F f, float* run_sums) {
  const uint32_t channel = ThreadChannel<kWidth>();
  const bool has_channel = channel < shape.channels;
  float sums[kSums][kWidth] = {};
  if (has_channel) {
    f.Begin(channel);
    const size_t first = blockIdx.x * shape.run_pixels;
    const size_t last = min(first + shape.run_pixels, shape.pixels);
    for (size_t pixel = first + threadIdx.y; pixel < last; pixel += blockDim.y) f.Add(pixel, sums);
  }
  __shared__ float shared[kColumnThreads][kWidth];
  const uint32_t self = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
  for (int s = 0; s < kSums; ++s) {  // unrolled: otherwise the sums are not in registers
    for (int i = 0; i < kWidth; ++i) shared[self][i] = sums[s][i];
    for (uint32_t half = blockDim.y / 2; half > 0; half /= 2) {
      __syncthreads();
      if (threadIdx.y >= half) continue;
      for (int i = 0; i < kWidth; ++i) shared[self][i] += shared[self + half * blockDim.x][i];
    }
    if (threadIdx.y == 0 && has_channel) {
      float* to = run_sums + (size_t{blockIdx.x} * kSums + s) * shape.channels + channel;
      for (int i = 0; i < kWidth; ++i) to[i] = shared[self][i];
    }
    __syncthreads();
  }
}

// Adds the runs' sums of a channel, then calls f(channel, totals). Eight channels' sums are one
// sector of memory. A channel has many threads because each waits for the values that it adds: 1024
// runs take as long as 32 loads.
inline constexpr uint32_t kTotalsAcross = 8, kTotalsDown = 32;
template <int kSums, class F>
__global__ void AddRuns(uint32_t channels, uint32_t run_count, const float* run_sums, F f) {
  const uint32_t channel = blockIdx.x * kTotalsAcross + threadIdx.x;
  double totals[kSums] = {};
  if (channel < channels) {
#pragma unroll 4
    for (uint32_t run = threadIdx.y; run < run_count; run += kTotalsDown) {
      for (int s = 0; s < kSums; ++s) {
        totals[s] += run_sums[(size_t{run} * kSums + s) * channels + channel];
      }
    }
  }
  __shared__ double shared[kTotalsDown][kTotalsAcross];
#pragma unroll
  for (int s = 0; s < kSums; ++s) {
    shared[threadIdx.y][threadIdx.x] = totals[s];
    __syncthreads();
    if (threadIdx.y == 0) {
      for (uint32_t i = 1; i < kTotalsDown; ++i) totals[s] += shared[i][threadIdx.x];
    }
    __syncthreads();
  }
  if (threadIdx.y == 0 && channel < channels) f(channel, totals);
}

// Calls finish(channel, totals) for every channel, with the sums of the values that `terms` adds.
template <int kSums, int kWidth, class F, class G>
void SumColumns(CudaDevice& gpu, size_t pixels, uint32_t channels, const F& terms, const G& finish,
                float* run_sums) {
  const ColumnShape shape = PlanColumns(pixels, channels, kWidth);
  Launch(gpu, shape.grid_size, shape.block_size, SumRuns<kSums, kWidth, F>, shape, terms, run_sums);
  Launch(gpu, dim3(DivideUp(channels, kTotalsAcross)), dim3(kTotalsAcross, kTotalsDown),
         AddRuns<kSums, G>, channels, shape.run_count, run_sums, finish);
}

// A `finish` that stores the sums.
template <int kSums>
struct StoreTotals {
  float* to;  // [sum, channel]
  uint32_t channels;
  __device__ void operator()(uint32_t channel, const double (&totals)[kSums]) const {
    for (int s = 0; s < kSums; ++s) {
      to[size_t{channels} * s + channel] = static_cast<float>(totals[s]);
    }
  }
};

// Computes sums[c] of elements [pixels, channels], as for a bias's gradient. run_sums has
// RunSumsBytes() for one sum. linear.cu defines this function.
void SumElements(CudaDevice& gpu, size_t pixels, uint32_t channels, const void* x, float* sums,
                 void* run_sums);

}  // namespace pando::cuda
