// How many items with payloads travel in one message. ZeroMQ hands a message over whole: of a large
// one the receiver could do nothing before its last byte is there, so the way back would begin only
// when the way out is over. Cut, both go on at once.
#pragma once

#include <utility>
#include <vector>

#include "proto/message_limits.h"

namespace pando {

// A message is closed when it has this much: 256 KiB to 1 MiB were best on loopback.
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
