// CopyQueue: copies between pinned memory of the host and a GPU's memory that go on beside its
// kernels, in the order in which they were put here. Used by the worker's computing thread.
// Threads: as Device. Owns: a stream of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/device.h"

namespace pando {

class CopyQueue {
 public:
  explicit CopyQueue(Device device);  // REQUIRES: a GPU
  ~CopyQueue();                       // waits for what is on its way
  CopyQueue(CopyQueue&&) noexcept;

  // The host's memory stays as it is until the copy is done; where it is not pinned (PinnedFloats),
  // the driver has made its own copy of it when this returns.
  void ToDevice(std::span<const std::byte> host, void* to);
  // The host's memory is pinned, and nobody's until the copy is done.
  void ToHost(const void* from, std::span<std::byte> host);

  // Copies that are put here from now on begin after all that has been launched so far.
  void AwaitLaunched();
  // What is launched from now on begins after all copies that have been put here so far.
  void HoldLaunches();

  // Names all copies that have been put here so far; tickets grow.
  using Ticket = uint64_t;
  Ticket Mark();
  bool IsDone(Ticket ticket);
  void Await(Ticket ticket);

 private:
  struct Impl;  // defined in kernels/cuda alone
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
