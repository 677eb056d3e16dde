// OpenedGpu is a GPU in use, and OpenCuda opens one. kernels/cuda/cuda_device.cc implements them.
// Threads: as for Device. Owns: the GPU's streams and handles.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/result.h"
#include "kernels/device.h"

namespace pando {

// A line for the log, written once per problem when it is first computed.
struct EngineNote {
  std::string text;
  bool is_fallback = false;  // no engine exists: our own kernel computes it, slowly
};
using OnEngineNote = std::function<void(const EngineNote&)>;

struct CudaOptions {
  int index = 0;  // in CUDA's order
  ElementType element = ElementType::kFloat32;
  bool allow_tf32 = false;              // products of floats with a mantissa of 10 bits
  bool allow_nondeterministic = false;  // faster algorithms that may differ between runs
  OnEngineNote on_engine = nullptr;     // for each convolution; called by the thread that computes
};

class OpenedGpu {
 public:
  explicit OpenedGpu(std::unique_ptr<CudaDevice> gpu);
  ~OpenedGpu();
  OpenedGpu(OpenedGpu&&) noexcept;
  Device device() const;
  // "NVIDIA H200, compute capability 9.0, cuDNN 9.19.0, cuBLASLt 13.0.2": everything that
  // determines its bits.
  std::string description() const;
  std::string bus_id() const;  // "0000:17:00.0": its place on the bus, for kernels/nvml

 private:
  std::unique_ptr<CudaDevice> gpu_;
};

// Opens a GPU for the calling thread. kNotFound: this machine has no such GPU, or this build has no
// CUDA; the error says what to do.
Result<OpenedGpu> OpenCuda(const CudaOptions& options);

}  // namespace pando
