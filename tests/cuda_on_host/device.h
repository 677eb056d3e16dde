// The GPU of tests/cuda_on_host. Its memory is the host's, and kernels are functions of the host.
// If CUDA_ON_HOST_PTX says where the PTX of kernels/cuda is (tests/ptx/machine.h), tests/ptx
// interprets it, and the host cannot access the GPU's memory. Threads: one at a time.
#pragma once

#include <cstddef>

#include "tests/cuda_on_host/cuda_runtime.h"

namespace cuda_on_host {

// Aligned to 256 bytes.
std::byte* AllocateOnHost(size_t size_bytes);
void* AllocateOnDevice(size_t size_bytes, bool is_managed);
void FreeOnDevice(void* memory);
void Copy(void* to, const void* from, size_t size_bytes, cudaMemcpyKind kind);
void SetBytes(void* to, int byte, size_t size_bytes);

// Where the libraries in place of NVIDIA's find an array of the GPU's memory, and the same for one
// that they fill.
const void* ViewForLoad(const void* memory, size_t size_bytes);
void* ViewForStore(void* memory, size_t size_bytes);
template <class T>
const T* ForLoad(const T* array, size_t count) {
  return static_cast<const T*>(ViewForLoad(array, count * sizeof(T)));
}
template <class T>
T* ForStore(T* array, size_t count) {
  return static_cast<T*>(ViewForStore(array, count * sizeof(T)));
}

}  // namespace cuda_on_host
