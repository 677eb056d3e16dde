// These functions simulate a machine that computes wrongly, for the test of P41 alone. One program
// of tests/e2e is compiled with PANDO_BIT_FLIP and defines them (tests/e2e/bit_flip.cc). In the
// product they are empty and leave no trace.
#pragma once

#include <cstdint>

#include "common/float_buffer.h"
#include "common/ids.h"
#include "plan/shard_plan.h"

namespace pando {

#ifdef PANDO_BIT_FLIP
void ArmBitFlip(uint32_t worker_rank);
// Called on the CPU with final shards of a micro-batch's flat gradient, before they are hashed or
// added to anything.
void FlipBit(Step step, MicroBatch micro_batch, ShardPlan::Run shards, FloatBuffer& gradients);
#else
constexpr void ArmBitFlip(uint32_t) {}
constexpr void FlipBit(Step, MicroBatch, ShardPlan::Run, FloatBuffer&) {}
#endif

}  // namespace pando
