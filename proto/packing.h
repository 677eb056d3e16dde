// Compressed forms of large encodings that many receivers get (SharedView). Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/blob.h"
#include "common/result.h"

namespace pando {

// Returns 8 bytes with the number of words, the lowest byte first, then the words in zlib's format,
// then zeros up to a whole word.
Blob Pack(std::span<const uint64_t> words);

// Returns the words, or kCorrupt if the bytes are not packed words, or more than `words_max`.
Result<std::vector<uint64_t>> Unpack(std::span<const std::byte> bytes, size_t words_max);

}  // namespace pando
