// JoinGpus: an AllreduceGroup whose gradients are summed by the workers' GPUs (kernels/gpu_sum),
// where each of them has its own; what ranks tell each other goes by the group below it. Called on
// the thread of GradientExchange.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/device.h"
#include "worker/allreduce/allreduce_group.h"

namespace pando {

struct GpuGroupOptions {
  Device device;  // this rank's; the CPU: it has none
  uint32_t rank = 0;
  uint32_t size = 1;
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(60);
};

struct JoinedGpus {
  std::unique_ptr<AllreduceGroup> group;
  std::string refusal;  // why the group below sums; empty: GPUs do
};

// All ranks call it at once, and all get the same kind of group: GPUs sum if every rank can. Blocks
// until that is agreed. Errors are the group's.
Result<JoinedGpus> JoinGpus(const GpuGroupOptions& options, std::unique_ptr<AllreduceGroup> below,
                            const std::atomic<bool>& is_cancelled);

}  // namespace pando
