// A machine that computes wrongly, for the test of P41 alone: a program of tests/e2e is compiled
// with PANDO_BIT_FLIP and brings these two functions (tests/e2e/bit_flip.cc). The product is
// compiled without them: they are then empty and leave no trace.
#pragma once

#include <cstdint>
#include <span>

#include "common/ids.h"

namespace pando {

#ifdef PANDO_BIT_FLIP
void ArmBitFlip(uint32_t worker_rank);
// Called with each shard of a micro-batch's gradient before it is hashed or added to anything.
void FlipBit(Step step, MicroBatch micro_batch, ShardId shard, std::span<float> gradient);
#else
constexpr void ArmBitFlip(uint32_t) {}
constexpr void FlipBit(Step, MicroBatch, ShardId, std::span<float>) {}
#endif

}  // namespace pando
