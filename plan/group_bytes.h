// The size of the groups in which workers push a lane's shards (worker/push_groups.h), which
// `pando plan` counts, too (plan/server_exchange.cc).
#pragma once

#include <algorithm>
#include <cstddef>

namespace pando {

// A group takes shards until it has this many bytes. Fewer are not worth waking the protocol thread
// for: on two cores a step of the MNIST CNN (87 KB) takes 2 % less time with one message than with
// two.
inline constexpr size_t kGroupBytesMax = 128 << 10;
// The groups of a receiver that has more bytes in all than one group, but not many times as much,
// close at fewer bytes, but not below this.
inline constexpr size_t kGroupBytesMin = 64 << 10;
inline constexpr size_t kGroupsWanted = 32;

// Returns the bytes at which the groups of a receiver with this many bytes in all close.
inline size_t GroupBytes(size_t receiver_bytes, size_t bytes_max = kGroupBytesMax) {
  if (receiver_bytes <= bytes_max) return bytes_max;
  return std::clamp(receiver_bytes / kGroupsWanted, std::min(kGroupBytesMin, bytes_max), bytes_max);
}

}  // namespace pando
