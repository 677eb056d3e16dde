// Checks the return values of CUDA's runtime and libraries.
#pragma once

#include <cuda_runtime.h>

namespace pando::cuda {

[[noreturn]] void CudaFailed(const char* call, const char* what, const char* file, int line);

}  // namespace pando::cuda

// A GPU that fails is a machine that fails: the process stops, another one starts and joins, and
// the protocol recovers. A macro because the call's text and place belong in the message.
#define PANDO_CUDA_CHECK(call)                                                                \
  do {                                                                                        \
    const cudaError_t pando_status = (call);                                                  \
    if (pando_status != cudaSuccess)                                                          \
      ::pando::cuda::CudaFailed(#call, cudaGetErrorString(pando_status), __FILE__, __LINE__); \
  } while (false)
