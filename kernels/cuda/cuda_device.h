// CudaDevice: one GPU for this folder's operations. It has the stream, the libraries' handles and
// plans, and the pinned memory through which the host's arrays pass. OpenCuda makes it. Threads:
// one at a time.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "common/check.h"
#include "kernels/cuda/conv_library.h"
#include "kernels/cuda/matrix_library.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/staging.h"
#include "kernels/cuda/stream.h"
#include "kernels/opened_gpu.h"

namespace pando {

class CudaDevice {
 public:
  struct Parts {
    cuda::Stream stream;
    std::unique_ptr<cuda::ConvLibrary> convolutions;
    std::unique_ptr<cuda::MatrixLibrary> matrices;
  };
  // REQUIRES: the GPU exists and is current on this thread.
  CudaDevice(const CudaOptions& options, Parts parts);
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  Device device() { return {DeviceKind::kCuda, options_.element, this}; }
  int index() const { return options_.index; }
  std::string description() const;
  ElementType element() const { return options_.element; }
  cudaStream_t stream() const { return parts_.stream.get(); }
  uint32_t multiprocessor_count() const { return multiprocessor_count_; }
  cuda::ConvLibrary& convolutions() { return *parts_.convolutions; }
  cuda::MatrixLibrary& matrices() { return *parts_.matrices; }
  cuda::Staging& staging() { return staging_; }

 private:
  const CudaOptions options_;
  const Parts parts_;
  const uint32_t multiprocessor_count_;
  cuda::Staging staging_;
};

namespace cuda {

// Converts a value. An integer that does not fit stops the process.
template <class To, class From>
To CheckedCast(const From& value) {
  if constexpr (std::is_integral_v<From> && !std::is_same_v<From, bool>)
    PANDO_CHECK(std::in_range<To>(value));
  return static_cast<To>(value);
}

inline constexpr uint32_t kGridMax = 65535;  // blocks along y and z; x may have INT32_MAX

// Returns whether a GPU accepts a grid of this size.
inline bool IsGridSize(dim3 size) {
  return size.x > 0 && size.x <= INT32_MAX && size.y > 0 && size.y <= kGridMax && size.z > 0 &&
         size.z <= kGridMax;
}

// Launches a kernel on the device's stream. The arguments become its parameters; elements may be
// given as `void`. A grid that a GPU refuses stops the process, on a host too.
template <class... Parameters, class... Arguments>
void Launch(CudaDevice& gpu, dim3 grid_size, dim3 block_size, void (*kernel)(Parameters...),
            Arguments&&... arguments) {
  PANDO_CHECK(IsGridSize(grid_size));
  cudaLaunchConfig_t config{};
  config.gridDim = grid_size;
  config.blockDim = block_size;
  config.stream = gpu.stream();
  PANDO_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, CheckedCast<Parameters>(arguments)...));
}

}  // namespace cuda
}  // namespace pando
