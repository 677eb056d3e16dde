// Identifiers as types, so that swapped arguments do not compile. All folders use them.
#pragma once

#include <cstdint>

#include "common/strong_id.h"

namespace pando {

using ShardId = StrongId<struct ShardTag, uint32_t>;
using NodeId = StrongId<struct NodeTag, uint32_t>;  // given by the scheduler; 0 is the scheduler
using Incarnation = StrongId<struct IncarnationTag, uint64_t>;  // random, one per process life
using JobId = StrongId<struct JobTag, uint64_t>;
using MicroBatch = StrongId<struct MicroBatchTag, uint32_t>;  // index within its step
using TreeNode = StrongId<struct TreeNodeTag, uint32_t>;      // plan/micro_batch_tree
using Step = StrongId<struct StepTag, uint64_t>;
using Version = StrongId<struct VersionTag, uint64_t>;

// Step t updates version t, which makes version t + 1. StepPlan says which version it reads.
constexpr Version VersionUpdatedBy(Step step) { return Version(step.value()); }
constexpr Version VersionMadeBy(Step step) { return Version(step.value() + 1); }
constexpr Step StepUpdating(Version version) { return Step(version.value()); }
constexpr Step NextStep(Step step) { return Step(step.value() + 1); }

}  // namespace pando
