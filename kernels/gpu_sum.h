// GpuSum: sums arrays over several GPUs, each in a process of its own (NCCL). Used by a group of
// workers without servers. The arrays lie in the host's memory, for it is the host that updates
// parameters; what crosses between GPUs goes by the fastest way that there is.
// Threads: one; Close any. Owns: a communicator, a stream, and memory of the GPU for one array.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/status.h"
#include "kernels/device.h"

namespace pando {

class GpuSum {
 public:
  using GroupName = std::array<std::byte, 128>;
  struct Member {
    Device device;  // no two ranks' the same; it may be in use meanwhile
    GroupName group{};
    uint32_t rank = 0;
    uint32_t size = 1;
    std::chrono::milliseconds timeout = std::chrono::seconds(60);
  };
  // kNotFound: NCCL is not here; says why.
  static Status Check();
  // A name that no other group has: one rank makes it, and tells the others.
  static Result<GroupName> NewName();
  // Blocks until all ranks have come. kUnavailable: NCCL refuses, as it does when two ranks share a
  // GPU, with its reason; or a rank has not come in time, or `is_cancelled` became true.
  static Result<std::unique_ptr<GpuSum>> Join(const Member& member,
                                              const std::atomic<bool>& is_cancelled);
  ~GpuSum();

  // Replaces the values by their sums over all ranks, which are the same bits on every rank, and of
  // two ranks a + b. Every rank makes the same calls. Quickest in pinned memory (PinnedFloats).
  // kUnavailable once a rank is gone and NCCL has noticed, or after Close.
  Status Sum(std::span<float> values);

  // Ends the call under way, and all later ones.
  void Close() { is_closed_ = true; }

 private:
  struct Impl;  // defined in kernels/cuda alone
  explicit GpuSum(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
  std::atomic<bool> is_closed_ = false;
};

}  // namespace pando
