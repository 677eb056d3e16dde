#include "models/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace pando {

std::vector<BytesByUse> MemoryPlan::LiveBytes() const {
  std::vector<BytesByUse> begun(events.size() + 1), ended(events.size() + 1);
  for (const PlannedBuffer& buffer : buffers) {
    const auto use = static_cast<size_t>(buffer.use);
    begun[buffer.first_event][use] += buffer.bytes;
    ended[buffer.last_event + 1][use] += buffer.bytes;
  }
  std::vector<BytesByUse> live(events.size());
  BytesByUse bytes{};
  for (size_t event = 0; event < events.size(); ++event) {
    for (size_t use = 0; use < kBufferUseCount; ++use) {
      bytes[use] += begun[event][use] - ended[event][use];
    }
    live[event] = bytes;
  }
  return live;
}

uint64_t MemoryPlan::PeakLiveBytes() const {
  uint64_t peak = 0;
  for (const BytesByUse& bytes : LiveBytes()) {
    peak = std::max(peak, std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}));
  }
  return peak;
}

namespace {

uint64_t Aligned(uint64_t bytes) {
  return (bytes + kBufferAlignmentBytes - 1) / kBufferAlignmentBytes * kBufferAlignmentBytes;
}

// The lowest offset at which `buffer` overlaps none of `placed` that are needed at the same time.
uint64_t LowestOffset(const PlannedBuffer& buffer,
                      const std::vector<const PlannedBuffer*>& placed) {
  uint64_t offset = 0;
  for (const PlannedBuffer* other : placed) {  // by offset
    const bool is_apart =
        other->last_event < buffer.first_event || buffer.last_event < other->first_event;
    if (is_apart || other->offset + other->bytes <= offset) continue;
    if (offset + buffer.bytes <= other->offset) break;
    offset = Aligned(other->offset + other->bytes);
  }
  return offset;
}

}  // namespace

void PlaceBuffers(MemoryPlan* plan) {
  std::vector<PlannedBuffer*> order;
  for (PlannedBuffer& buffer : plan->buffers) order.push_back(&buffer);
  std::ranges::stable_sort(
      order, [](const PlannedBuffer* a, const PlannedBuffer* b) { return a->bytes > b->bytes; });
  std::vector<const PlannedBuffer*> placed;
  plan->allocated_bytes = 0;
  for (PlannedBuffer* buffer : order) {
    buffer->offset = LowestOffset(*buffer, placed);
    const auto at = std::ranges::upper_bound(placed, buffer->offset, {},
                                             [](const PlannedBuffer* p) { return p->offset; });
    placed.insert(at, buffer);
    plan->allocated_bytes =
        std::max(plan->allocated_bytes, Aligned(buffer->offset + buffer->bytes));
  }
}

}  // namespace pando
