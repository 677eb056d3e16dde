// AllreduceGroup: what the ranks of a group say to each other when there are no servers: sums of
// gradients, and what rank 0 tells all. Made by the worker process, called by GradientExchange.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/status.h"
#include "files/run_files.h"
#include "kernels/gpu_sum.h"
#include "plan/job.h"

namespace pando {

// Every rank makes the same calls with the same sizes in the same order. Each blocks until this
// rank's part is done. After a failure the group is of no further use.
// Threads: one; Close any.
class AllreduceGroup {
 public:
  virtual ~AllreduceGroup() = default;

  // Replaces the values by their sums over all ranks, which are the same bits on every rank.
  // kUnavailable when a rank is gone, with what is known of it.
  virtual Status Sum(std::span<float> values) = 0;

  // The same for values in the memory of this rank's GPU (GpuSum::Sum), where GPUs sum. Other ranks
  // may call either.
  virtual bool sums_on_gpus() const { return false; }
  virtual Status SumOnGpus(GpuSum::Pieces pieces, std::span<float> sums);  // REQUIRES: they do

  // Replaces the bytes by rank 0's.
  virtual Status Broadcast(std::span<std::byte> bytes) = 0;

  // Ends the call under way and all later ones, with kUnavailable.
  virtual void Close() = 0;
};

// ---- over gloo's TCP transport (gloo_group.cc alone uses gloo) ----------------------------------

struct GlooOptions {
  uint32_t rank = 0;
  uint32_t size = 1;
  std::string address;        // of this machine: what gloo listens on
  RunFiles* files = nullptr;  // that all ranks see: they tell each other their addresses in them.
                              // Not used once the group is connected
  std::string prefix;         // of this group's files alone
  AllreduceAlgorithm algorithm = AllreduceAlgorithm::kAuto;
  size_t step_bytes = 0;  // of all gradients of a step: what kAuto goes by
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(60);
};

// kInvalidArgument where this program was built without gloo, with what to do.
Status CheckGloo();

// Blocks until all ranks are connected. To be called on the thread that will use the group, where
// SIGPIPE is blocked from then on. kUnavailable if that takes longer than the timeout, or
// `is_cancelled` becomes true; kInvalidArgument where gloo is not built in.
Result<std::unique_ptr<AllreduceGroup>> ConnectGlooGroup(const GlooOptions& options,
                                                         const std::atomic<bool>& is_cancelled);

// ---- by the workers' GPUs, where each of them has its own ---------------------------------------

struct JoinedGpus {
  std::unique_ptr<AllreduceGroup> group;
  std::string refusal;  // why the group below sums; empty: GPUs do
};

// All ranks call it at once, and all get the same kind of group: GPUs sum if every rank can. What
// ranks tell each other goes by the group below. Blocks until that is agreed. Errors are the
// group's. `member`: its `group` is agreed here; its device may be the CPU: this rank has no GPU.
Result<JoinedGpus> JoinGpus(GpuSum::Member member, std::unique_ptr<AllreduceGroup> below,
                            const std::atomic<bool>& is_cancelled);

}  // namespace pando
