// How many items with payloads travel in one message. ZeroMQ delivers whole messages: with one
// large message the receiver could not start before its last byte arrives. With several, the
// replies begin while the rest is still being sent.
#pragma once

#include <utility>
#include <vector>

#include "proto/message_limits.h"

namespace pando {

// A message is closed at this size: 256 KiB to 1 MiB were best on loopback.
inline constexpr size_t kMessageBytes = 1 << 20;

// In order; none is empty.
template <class Item>
std::vector<std::vector<Item>> InMessages(std::vector<Item> items) {
  std::vector<std::vector<Item>> messages;
  size_t bytes = kMessageBytes;
  for (Item& item : items) {
    if (bytes >= kMessageBytes || messages.back().size() == kItemsPerMessageMax) {
      messages.emplace_back();
      bytes = 0;
    }
    bytes += item.payload.size_bytes();
    messages.back().push_back(std::move(item));
  }
  return messages;
}

}  // namespace pando
