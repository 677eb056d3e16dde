// GpuSum: sums arrays over several GPUs, each in a separate process (NCCL). Used by a group of
// workers without servers. The sums come to the host's memory, because the host updates
// parameters. Between GPUs they use the fastest path available. Threads: one; Close any. Owns: a
// communicator, a stream, and GPU memory for one array.
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
    Device device;  // different for each rank; it may be in use meanwhile
    GroupName group{};
    uint32_t rank = 0;
    uint32_t size = 1;
    std::chrono::milliseconds timeout = std::chrono::seconds(60);
  };
  // kNotFound: NCCL is missing; the error says why.
  static Status Check();
  // A name that no other group has. One rank makes it and sends it to the others.
  static Result<GroupName> NewName();
  // Blocks until all ranks have joined. kUnavailable: NCCL refuses with its reason, as for two
  // ranks on one GPU; or a rank has not joined in time, or `is_cancelled` became true.
  static Result<std::unique_ptr<GpuSum>> Join(const Member& member,
                                              const std::atomic<bool>& is_cancelled);
  ~GpuSum();

  // Replaces the values by their sums over all ranks: the same bits on every rank, and a + b for
  // two ranks. Every rank makes the same calls. Fastest in pinned memory (PinnedFloats).
  // kUnavailable after NCCL has noticed that a rank is gone, or after Close.
  Status Sum(std::span<float> values);
  // The same for values in this GPU's memory, final ones: pieces that lie one behind the other in
  // `sums`, in the host's memory. A rank's call of either kind meets the others' of either kind.
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
