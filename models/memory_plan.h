// MemoryPlan: the buffers of a network for one micro-batch, and their places in memory. Made by
// models/network_plan. Networks allocate by it, and `pando model` shows it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/text.h"

namespace pando {

enum class BufferUse : uint8_t {
  kActivation,          // outputs of layers, until their last reader is done
  kActivationGradient,  // on its way from a layer to the layers before it
  kKept,                // other data for backward: places of maxima, dropout's factors
  kScratch,             // of one operation
};
template <>
inline constexpr auto kEnumNames<BufferUse> = std::to_array({"activations", "activation_gradients",
                                                             "kept", "scratch"});
inline constexpr size_t kBufferUseCount = kEnumNames<BufferUse>.size();
using BytesByUse = std::array<uint64_t, kBufferUseCount>;

struct PlannedBuffer {
  BufferUse use = BufferUse::kActivation;
  uint64_t bytes = 0;
  // Its content is needed during events [first, last].
  size_t first_event = 0;
  size_t last_event = 0;
  uint64_t offset = 0;  // bytes; buffers needed at the same time do not overlap
};

struct MemoryEvent {
  bool is_backward = false;
  std::string layers;     // "conv1 relu1"
  bool is_again = false;  // a stage of forward that backward computes again
};

struct MemoryPlan {
  std::vector<MemoryEvent>
      events;  // forward in order, then backward in reverse, with recomputed stages
  std::vector<PlannedBuffer> buffers;
  uint64_t allocated_bytes = 0;  // all buffers of one network

  std::vector<BytesByUse> LiveBytes() const;  // by event: the buffers that it needs
  uint64_t PeakLiveBytes() const;             // the maximum over events
};

// Gives every buffer its offset, a multiple of kBufferAlignmentBytes, and sets allocated_bytes to
// the end of the last one. The largest buffers come first, each at the lowest free offset.
inline constexpr uint64_t kBufferAlignmentBytes = 64;
void PlaceBuffers(MemoryPlan* plan);

}  // namespace pando
