// Hashes of bytes in 64 bits, for comparisons, and numbers as hex digits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/ids.h"

namespace pando {

uint64_t Hash64(std::span<const std::byte> bytes, uint64_t seed = 0);
inline uint64_t Hash64(std::string_view text, uint64_t seed = 0) {
  return Hash64(std::as_bytes(std::span(text)), seed);
}

// Hashes a shard's version record (P8). Replicas compare this hash, and snapshots are checked
// against it.
uint64_t RecordHash(Version version, std::span<const float> parameters,
                    std::span<const float> state);

// HexText returns 16 hex digits. ParseHex returns the number that a text of hex digits stands for.
std::string HexText(uint64_t number);
std::optional<uint64_t> ParseHex(std::string_view text);

}  // namespace pando
