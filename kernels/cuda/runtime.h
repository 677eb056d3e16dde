// Checks of the values that the functions of CUDA's runtime return.
#pragma once

#include <cuda_runtime.h>

namespace pando::cuda {

[[noreturn]] void CudaFailed(const char* call, const char* what, const char* file, int line);

}  // namespace pando::cuda

// A GPU that fails is a machine that fails: the process stops, another one starts and joins, and
// the protocol recovers. A macro, because the message has the call's text and place.
#define PANDO_CUDA_CHECK(call) PANDO_STATUS_CHECK(call, #call, cudaSuccess, cudaGetErrorString)
// For any of NVIDIA's libraries. `text` is the call's text, and `describe` the library's function
// that names a status.
#define PANDO_STATUS_CHECK(call, text, success, describe)                            \
  do {                                                                               \
    const auto pando_status = (call);                                                \
    if (pando_status != (success))                                                   \
      ::pando::cuda::CudaFailed(text, (describe)(pando_status), __FILE__, __LINE__); \
  } while (false)
