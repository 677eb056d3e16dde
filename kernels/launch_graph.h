// LaunchGraph has launches that are recorded once, and then launched as one. Most of the cost of a
// small network's many short kernels is their launches. kernels/cuda/cuda_device.cc implements it.
// Threads: as for Device. Owns: the recording.
#pragma once

#include <functional>
#include <memory>

#include "kernels/device.h"

namespace pando {

class LaunchGraph {
 public:
  // `launches` may only call operations, each of which was called before with these shapes. They
  // are recorded, not run. The recording has addresses, so each launch reads the current values.
  LaunchGraph(Device device, const std::function<void()>& launches);
  ~LaunchGraph();
  LaunchGraph(LaunchGraph&&) noexcept;
  void Launch() const;

 private:
  struct Recording;  // defined in kernels/cuda alone
  std::unique_ptr<Recording> recording_;
};

}  // namespace pando
