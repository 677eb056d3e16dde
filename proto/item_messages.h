// InMessages distributes the items that a peer is sent over messages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "proto/message_limits.h"

namespace pando {

// A lane with few bytes gets smaller messages than kMessageBytes. With one message for everything
// it could answer nothing before all of it has arrived.
inline constexpr size_t kMessageBytesMin = 64 << 10;
inline constexpr size_t kMessagesOfLane = 8;

// Returns the size at which messages are closed, for a lane with these bytes in all.
constexpr size_t MessageBytesFor(size_t lane_bytes) {
  return std::clamp(lane_bytes / kMessagesOfLane, kMessageBytesMin, kMessageBytes);
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
