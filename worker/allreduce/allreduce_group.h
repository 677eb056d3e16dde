// AllreduceGroup connects the ranks of a group without servers: it sums gradients over all ranks,
// and sends bytes of rank 0 to all. Made by the worker process, called by GradientExchange.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/result.h"
#include "files/run_files.h"
#include "kernels/gpu_sum.h"
#include "plan/job.h"

namespace pando {

// Every rank makes the same calls with the same sizes in the same order. Each call blocks until
// this rank's part is done. After a failure the group cannot be used. Threads: one; Close may be
// called on any.
class AllreduceGroup {
 public:
  virtual ~AllreduceGroup() = default;

  // Replaces the values by their sums over all ranks, which are the same bits on every rank.
  // kUnavailable: a rank is gone; the text says which, if that is known.
  virtual Status Sum(std::span<float> values) = 0;

  // The same for values in the memory of this rank's GPU (GpuSum::Sum), if GPUs sum. Other ranks
  // may call either function.
  virtual bool sums_on_gpus() const { return false; }
  virtual Status SumOnGpus(GpuSum::Pieces pieces, std::span<float> sums);  // REQUIRES: they do

  // Replaces the bytes by those of rank 0.
  virtual Status Broadcast(std::span<std::byte> bytes) = 0;

  // Ends the current call and all later ones with kUnavailable.
  virtual void Close() = 0;
};

// ---- over gloo's TCP transport (gloo_group.cc alone uses gloo) ----------------------------------

struct GlooOptions {
  uint32_t rank = 0;
  uint32_t size = 1;
  std::string address;        // of this machine: gloo listens on it
  RunFiles* files = nullptr;  // all ranks see them, and exchange their addresses in them. They are
                              // not used once the group is connected
  std::string prefix;         // of the names of this group's files
  AllreduceAlgorithm algorithm = AllreduceAlgorithm::kAuto;
  size_t step_bytes = 0;  // of all gradients of a step: kAuto chooses by it
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(60);
};

// kInvalidArgument: this program was built without gloo. The text says what to do.
Status CheckGloo();

// Blocks until all ranks are connected. Call it on the thread that will use the group; SIGPIPE is
// blocked there from then on. kUnavailable: it takes longer than the timeout, or `is_cancelled`
// becomes true. kInvalidArgument: gloo is not built in.
Result<std::unique_ptr<AllreduceGroup>> ConnectGlooGroup(const GlooOptions& options,
                                                         const std::atomic<bool>& is_cancelled);

// ---- by the workers' GPUs, where each of them has its own ---------------------------------------

struct JoinedGpus {
  std::unique_ptr<AllreduceGroup> group;
  std::string refusal;  // why `group` sums on the CPUs; empty: GPUs sum
};

// All ranks call it at once, and all get the same kind of group: GPUs sum if every rank can. The
// ranks agree on that over the given group, whose errors this returns. Blocks until they agree.
// `member`: its `group` is agreed here. Its device is the CPU if this rank has no GPU.
Result<JoinedGpus> JoinGpus(GpuSum::Member member, std::unique_ptr<AllreduceGroup> below,
                            const std::atomic<bool>& is_cancelled);

}  // namespace pando
