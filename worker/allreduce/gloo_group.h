// ConnectGlooGroup: an AllreduceGroup over gloo's TCP transport. Called by the worker process of a
// run without servers, on the thread of its GradientExchange. gloo appears in gloo_group.cc alone.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/status.h"
#include "plan/job.h"
#include "worker/allreduce/allreduce_group.h"

namespace pando {

struct GlooOptions {
  uint32_t rank = 0;
  uint32_t size = 1;
  std::string address;  // of this machine: what gloo listens on
  std::string folder;   // of this group alone, seen by all ranks: they tell each other their
                        // addresses in it. Made if need be
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

}  // namespace pando
