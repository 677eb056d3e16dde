// MemoryPlan: what a network holds in memory over one micro-batch, buffer by buffer, and where.
// Made by models/network_plan; networks allocate by it, and `pando model` shows it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pando {

enum class BufferUse : uint8_t {
  kActivation,          // what layers made, until nobody reads it any more
  kActivationGradient,  // on its way from a layer to those before it
  kKept,                // else what forward keeps for backward: where maxima lay, dropout's factors
  kScratch,             // of one operation
};
inline constexpr size_t kBufferUseCount = 4;
using BytesByUse = std::array<uint64_t, kBufferUseCount>;
const char* BufferUseName(BufferUse use);

struct PlannedBuffer {
  BufferUse use = BufferUse::kActivation;
  uint64_t bytes = 0;
  // What it holds is needed during events [first, last].
  size_t first_event = 0;
  size_t last_event = 0;
  uint64_t offset = 0;  // bytes; buffers needed at the same time do not overlap
};

struct MemoryEvent {
  bool is_backward = false;
  std::string layers;     // "conv1 relu1"
  bool is_again = false;  // of backward: forward, a second time
};

struct MemoryPlan {
  std::vector<MemoryEvent>
      events;  // forward in order, then backward in reverse, and what it makes again
  std::vector<PlannedBuffer> buffers;
  uint64_t allocated_bytes = 0;  // for all of them, by one network

  std::vector<BytesByUse> LiveBytes() const;  // by event: of the buffers needed in it
  uint64_t PeakLiveBytes() const;             // the most of any event
};

// Gives every buffer its offset, a multiple of kBufferAlignmentBytes, and sets allocated_bytes to
// where the last ends: the largest first, each as low as those before it allow.
inline constexpr uint64_t kBufferAlignmentBytes = 64;
void PlaceBuffers(MemoryPlan* plan);

}  // namespace pando
