// BoundMemory bounds the memory that the protocol lets a process of each role hold (I6), for `pando
// plan --memory`. docs/protocol.md, section 12, has the bounds. Usually a process stays far below.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pando {

struct MemoryInput {
  uint64_t parameter_bytes = 0;
  uint32_t workers = 1;
  uint32_t servers = 1;
  uint32_t replicas = 1;          // of each shard
  uint32_t micro_batches = 1;     // of a step
  uint32_t threads = 1;           // per worker
  uint32_t optimizer_states = 2;  // floats besides each parameter; Adam has two
  uint32_t staleness = 0;         // train.staleness
};

struct MemoryBound {
  std::string role;  // "server"
  std::string what;
  uint64_t bytes = 0;
};

// Returns the bounds of one process per role, without activations, samples and the program.
std::vector<MemoryBound> BoundMemory(const MemoryInput& input);

}  // namespace pando
