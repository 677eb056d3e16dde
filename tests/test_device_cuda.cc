// Tests of kernels and networks on a GPU, or on the host in its place (tests/cuda_on_host). Exits
// with 77 where there is no GPU.
#define DOCTEST_CONFIG_IMPLEMENT
#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <cstdio>
#include <optional>

#include "kernels/cuda/runtime.h"
#include "kernels/opened_gpu.h"
#include "tests/test_device.h"

namespace pando {
namespace {

std::optional<OpenedGpu> opened;

}  // namespace

Device TestDevice() { return opened->device(); }

std::shared_ptr<void> AllocateForTest(size_t size_bytes) {
  void* memory = nullptr;
  // In the GPU's memory while kernels use it, and in the host's while tests do. Of nothing there is
  // none.
  PANDO_CUDA_CHECK(cudaMallocManaged(&memory, size_bytes + 1));
  return {memory, [](void* p) { PANDO_CUDA_CHECK(cudaFree(p)); }};
}

}  // namespace pando

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  int gpu_count = 0;
  if (cudaGetDeviceCount(&gpu_count) != cudaSuccess || gpu_count == 0) {
    std::printf("skipped: there is no GPU here\n");
    return kSkipped;
  }
  pando::Result<pando::OpenedGpu> gpu = pando::OpenCuda({});
  if (!gpu.ok()) {
    std::printf("%s\n", gpu.status().message().c_str());
    return 1;
  }
  pando::opened.emplace(*std::move(gpu));
  const int result = doctest::Context(argc, argv).run();
  pando::opened.reset();  // before CUDA's own end
  return result;
}
