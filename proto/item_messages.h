// InMessages distributes the items that a peer is sent over messages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "proto/message_limits.h"

namespace pando {

// A lane with few bytes gets smaller messages than kMessageBytes. With one message for everything
// it could answer nothing before all of it has arrived.
inline constexpr size_t kMessageBytesMin = 128 << 10;
inline constexpr size_t kMessagesOfLane = 8;

// Returns the size at which messages are closed, for a lane with these bytes in all.
constexpr size_t MessageBytesFor(size_t lane_bytes) {
  return std::clamp(lane_bytes / kMessagesOfLane, kMessageBytesMin, kMessageBytes);
}

// Returns where a node begins among `count` > 0 receivers. Nodes begin at different places, so that
// not all of them send to the same one first.
constexpr size_t PlaceAmong(size_t count, NodeId self) {
  constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15;  // Knuth's multiplicative hash
  return static_cast<size_t>((self.value() * kGoldenRatio) >> 32) % count;
}

// Distributes the items over messages, in order; no message is empty. A message is closed at
// `close_at` bytes of its payloads.
template <class Item>
std::vector<std::vector<Item>> InMessages(std::vector<Item> items,
                                          size_t close_at = kMessageBytes) {
  std::vector<std::vector<Item>> messages;
  size_t bytes = close_at;
  for (Item& item : items) {
    if (bytes >= close_at || messages.back().size() == kItemsPerMessageMax) {
      messages.emplace_back();
      bytes = 0;
    }
    bytes += item.payload.size_bytes();
    messages.back().push_back(std::move(item));
  }
  return messages;
}

}  // namespace pando
