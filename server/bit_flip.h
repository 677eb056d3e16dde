// These functions simulate a machine whose memory or processor changes a bit of a version, for the
// test of P8's votes alone. One program of tests/e2e is compiled with PANDO_BIT_FLIP and defines
// them (tests/e2e/bit_flip.cc). In the product they are empty and leave no trace.
#pragma once

#include <span>

#include "common/ids.h"

namespace pando {

#ifdef PANDO_BIT_FLIP
// Called when a replica has made the version, before its hash is known.
void FlipRecord(ShardId shard, Version version, std::span<float> parameters,
                std::span<float> state);
#else
constexpr void FlipRecord(ShardId, Version, std::span<float>, std::span<float>) {}
#endif

}  // namespace pando
