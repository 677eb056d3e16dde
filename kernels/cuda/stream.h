// Stream is a queue of work on the current GPU, which runs in order.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "kernels/cuda/runtime.h"

namespace pando::cuda {

class Stream {
 public:
  Stream() { PANDO_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  ~Stream() {
    if (stream_ != nullptr) PANDO_CUDA_CHECK(cudaStreamDestroy(stream_));
  }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace pando::cuda
