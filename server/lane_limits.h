// These are the intervals and bounds of the lane (I6), and the rule for gathering small messages.
#pragma once

#include <algorithm>
#include <optional>

#include "proto/outbox.h"

namespace pando {

inline constexpr Micros kRetryInterval = std::chrono::milliseconds(200);
inline constexpr Micros kProgressInterval = std::chrono::milliseconds(20);
// Roots and chunks are repeated less and less often: large ones may take long on the wire.
inline constexpr Micros kRootRetryFirst = std::chrono::milliseconds(200);
inline constexpr Micros kRootRetryMax = std::chrono::seconds(1);
inline constexpr size_t kRowsPerProgressMax = 4096;
// A primary does not commit a version that is this many above its newcomer's newest one (P20).
inline constexpr uint64_t kUnackedRootsMax = 2;
// At most this many snapshots of a shard are written at once. Others fail, except the final one.
inline constexpr uint32_t kStoresInFlightMax = 2;
inline constexpr size_t kUnackedSnapshotsMax = 64;  // of each shard
inline constexpr size_t kAskedSnapshotsMax = 16;

// The small shards of a step are answered and replicated together: a message with few bytes waits
// for at most kHoldMax while other shards of the lane are about to make the same version. A message
// with this many bytes for one peer leaves at once.
inline constexpr size_t kFullMessageBytes = 64 << 10;
inline constexpr Micros kHoldMax = std::chrono::milliseconds(2);

template <class Gathered>  // map from peer to a message of items with payloads
bool HasFullMessage(const Gathered& gathered) {
  return std::ranges::any_of(gathered, [](const auto& entry) {
    size_t bytes = 0;
    for (const auto& item : entry.second.items) bytes += item.payload.size_bytes();
    return bytes >= kFullMessageBytes;
  });
}

// Returns whether a gathered message keeps waiting. It leaves at `held_until` at the latest.
inline bool IsHeld(Micros now, bool is_worth_it, std::optional<Micros>* held_until) {
  if (is_worth_it && !*held_until) *held_until = now + kHoldMax;
  if (is_worth_it && now < **held_until) return true;
  held_until->reset();
  return false;
}

}  // namespace pando
