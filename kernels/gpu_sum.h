// GpuSum: sums arrays over several GPUs, each in a separate process (NCCL). A group of workers
// without servers uses it. The sums arrive in the host's memory, because the host updates
// parameters. Between GPUs they use the fastest path available. Threads: one; any may call Close.
// Owns: a communicator, a stream, and GPU memory for one array.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/result.h"
#include "kernels/device.h"

namespace pando {

class GpuSum {
 public:
  using GroupName = std::array<std::byte, 128>;
  struct Member {
    Device device;  // different for each rank; it may be in use meanwhile
    GroupName group{};
    uint32_t rank = 0;
    uint32_t size = 1;
    std::chrono::milliseconds timeout = std::chrono::seconds(60);
  };
  // Returns kNotFound if NCCL is missing; the error says why.
  static Status Check();
  // Makes a name that no other group has. One rank makes it and sends it to the others.
  static Result<GroupName> NewName();
  // Blocks until all ranks have joined. kUnavailable: NCCL refuses with a reason, as for two ranks
  // on one GPU; or a rank has not joined in time, or `is_cancelled` became true.
  static Result<std::unique_ptr<GpuSum>> Join(const Member& member,
                                              const std::atomic<bool>& is_cancelled);
  ~GpuSum();

  // Replaces the values by their sums over all ranks. Every rank gets the same bits; with two ranks
  // these are the bits of a + b. Every rank makes the same calls. It is fastest in pinned memory
  // (PinnedFloats). kUnavailable: NCCL has noticed that a rank is gone, or Close was called.
  Status Sum(std::span<float> values);
  // Does the same for final values in this GPU's memory: pieces that are adjacent in `sums`, in the
  // host's memory. One rank may call this function while another rank calls the first one.
  using Pieces = std::span<const std::span<const float>>;
  Status Sum(Pieces pieces, std::span<float> sums);

  // Ends the current call and all later ones.
  void Close() { is_closed_ = true; }

 private:
  struct Impl;  // defined in kernels/cuda alone
  explicit GpuSum(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
  std::atomic<bool> is_closed_ = false;
};

}  // namespace pando
