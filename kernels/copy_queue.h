// CopyQueue makes ordered copies between the host's pinned memory and a GPU's memory, beside the
// GPU's kernels. The worker's computing thread uses it. kernels/cuda/cuda_device.cc implements it.
// Threads: as for Device. Owns: a stream.
#pragma once

#include <memory>
#include <span>

#include "kernels/device.h"

namespace pando {

class CopyQueue {
 public:
  explicit CopyQueue(Device device);  // REQUIRES: a GPU
  ~CopyQueue();                       // waits for its copies
  CopyQueue(CopyQueue&&) noexcept;

  // The host's memory must not change until the copy is done. If it is not pinned (PinnedFloats),
  // the driver has its own copy of it when this returns.
  void ToDevice(std::span<const std::byte> host, void* to);
  // The host's memory is pinned, and must not be used until the copy is done.
  void ToHost(const void* from, std::span<std::byte> host);

  // Later copies of this queue begin after everything that has been launched so far.
  void AwaitLaunched();
  // Later launches begin after all copies of this queue so far.
  void HoldLaunches();

  // Identifies all copies of this queue so far; tickets grow.
  using Ticket = uint64_t;
  Ticket Mark();
  bool IsDone(Ticket ticket);
  void Await(Ticket ticket);

 private:
  struct Impl;  // defined in kernels/cuda alone
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
