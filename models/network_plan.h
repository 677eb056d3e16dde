// NetworkPlan: the events of one pass through a network's stages, and the buffers of each event's
// arrays. Made once per network; models/network.cc runs it.
//
// An activation is needed from the stage that makes it to the last stage that reads it, forward or
// backward. If several stages read an activation, its gradient is the sum of theirs, the last
// reader's first. Between checkpoints activations are dropped, and made again right before their
// backward.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/memory_plan.h"
#include "models/stage.h"

namespace pando {

inline constexpr size_t kNoBuffer = SIZE_MAX;

// Buffers, as indices of MemoryPlan::buffers.
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
  size_t sum[kStageInputsMax] = {kNoBuffer, kNoBuffer};  // then dx is added to this
};

struct StageRun {  // [first, last) of stages
  size_t first = 0;
  size_t last = 0;
};

struct NetworkPlan {
  MemoryPlan memory;
  size_t input = kNoBuffer;                     // the network's
  size_t score_gradient = kNoBuffer;            // of the last stage's output
  std::vector<ForwardBuffers> forward;          // by stage
  std::vector<ForwardBuffers> again;            // by stage: for stages that are computed again
  std::vector<BackwardBuffers> backward;        // by stage
  std::vector<bool> has_backward;               // by stage: it or a stage before it is trained
  std::vector<std::vector<size_t>> made_again;  // by stage: stages to recompute before its backward
};

// For up to sample_count samples of `input`, in elements of the device's type. `segments`: separate
// runs of stages, in order, whose inner activations are dropped and made again.
NetworkPlan PlanTraining(const std::vector<StagePlan>& stages, SampleShape input,
                         uint32_t sample_count, std::span<const StageRun> segments,
                         ElementType element = ElementType::kFloat32);
// Chooses the segments that need the least memory, with cuts only where a single activation passes.
// Of equal choices it takes the one that computes least again. Less than evaluation_bytes is no
// gain, because evaluation needs them anyway.
NetworkPlan PlanCheckpointed(const std::vector<StagePlan>& stages, SampleShape input,
                             uint32_t sample_count, uint64_t evaluation_bytes,
                             ElementType element = ElementType::kFloat32);
NetworkPlan PlanEvaluation(const std::vector<StagePlan>& stages, SampleShape input,
                           uint32_t sample_count, ElementType element = ElementType::kFloat32);

}  // namespace pando
