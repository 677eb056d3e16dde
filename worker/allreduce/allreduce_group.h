// AllreduceGroup: what the ranks of a group say to each other when there are no servers: sums of
// gradients, and what rank 0 tells all. gloo_group implements it for CPUs; a GPU's library would be
// another implementation. Called by GradientExchange.
#pragma once

#include <cstddef>
#include <span>

#include "common/status.h"

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

  // Replaces the bytes by rank 0's.
  virtual Status Broadcast(std::span<std::byte> bytes) = 0;

  // Ends the call under way and all later ones, with kUnavailable.
  virtual void Close() = 0;
};

}  // namespace pando
