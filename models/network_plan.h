// NetworkPlan holds the events of one pass through a network's stages, the buffers of each event's
// arrays, and their places in memory. It is made once per network. models/network.cc runs it, and
// `pando model` shows its memory.
//
// An activation is needed from the stage that makes it to the last stage that reads it, forward or
// backward. If several stages read an activation, its gradient is the sum of theirs, with the last
// reader's first. Between checkpoints activations are dropped, and made again right before their
// backward.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/text.h"
#include "models/stage.h"

namespace pando {

enum class BufferUse : uint8_t {
  kActivation,          // outputs of layers, until their last reader is done
  kActivationGradient,  // passed from a layer to earlier layers
  kKept,                // other data for backward: places of maxima, dropout's factors
  kScratch,             // for one operation
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

  std::vector<BytesByUse> LiveBytes() const;  // by event: the bytes of the buffers that it needs
  uint64_t PeakLiveBytes() const;             // the maximum over events
};

// Gives every buffer its offset, a multiple of kBufferAlignmentBytes, and sets allocated_bytes to
// the end of the last one. The largest buffers come first, each at the lowest free offset.
inline constexpr uint64_t kBufferAlignmentBytes = 64;
void PlaceBuffers(MemoryPlan* plan);

inline constexpr size_t kNoBuffer = SIZE_MAX;

// The buffers of a stage, as indices of MemoryPlan::buffers.
struct ForwardBuffers {
  size_t x[kStageInputsMax] = {kNoBuffer, kNoBuffer};
  size_t y = kNoBuffer;
  size_t kept = kNoBuffer;
  size_t scratch = kNoBuffer;
};
struct BackwardBuffers {
  size_t x = kNoBuffer;
  size_t y = kNoBuffer;
  size_t kept = kNoBuffer;
  size_t scratch = kNoBuffer;
  size_t dy = kNoBuffer;
  size_t dx[kStageInputsMax] = {kNoBuffer, kNoBuffer};   // written by the stage
  size_t sum[kStageInputsMax] = {kNoBuffer, kNoBuffer};  // if set, dx is then added to this
  bool adds_dx = false;                                  // the stage itself adds to dx[0]
};

struct StageRun {  // [first, last) of stages
  size_t first = 0;
  size_t last = 0;
};

struct NetworkPlan {
  MemoryPlan memory;
  size_t input = kNoBuffer;                     // the buffer of the network's input
  uint32_t input_channels = 0;                  // of the input as it is stored
  size_t score_gradient = kNoBuffer;            // the gradient of the last stage's output
  std::vector<ForwardBuffers> forward;          // by stage
  std::vector<ForwardBuffers> again;            // by stage: for stages that are computed again
  std::vector<BackwardBuffers> backward;        // by stage
  std::vector<bool> has_backward;               // by stage: it or an earlier stage is trained
  std::vector<std::vector<size_t>> made_again;  // by stage: stages to recompute before its backward
};

// Requests a plan for a network for up to sample_count samples of `input`.
struct PlanRequest {
  const std::vector<StagePlan>& stages;
  SampleShape input;
  uint32_t sample_count = 1;
  Device device = {};
};

// `segments` are separate runs of stages, in order, whose inner activations are dropped and made
// again.
NetworkPlan PlanTraining(const PlanRequest& request, std::span<const StageRun> segments);
// Chooses the segments that need the least memory, with cuts only where a single activation passes.
// If choices are equal, it takes the one that recomputes least. Memory below evaluation_bytes is no
// gain, because evaluation needs it anyway.
NetworkPlan PlanCheckpointed(const PlanRequest& request, uint64_t evaluation_bytes);
NetworkPlan PlanEvaluation(const PlanRequest& request);

}  // namespace pando
