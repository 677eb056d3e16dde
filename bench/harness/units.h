// Sizes as people write them: "4KiB", "1MiB", "65536". Used by the benchmarks' flags and tables.
#pragma once

#include <cstdint>
#include <string>

#include "common/status.h"

namespace pando::bench {

// A number above 0 with one of B, KiB, MiB, GiB or nothing behind it; at most `bytes_max`.
Result<uint64_t> ParseBytes(const std::string& text, uint64_t bytes_max = UINT64_MAX);

// The other way: in the largest unit that divides it.
std::string BytesText(uint64_t bytes);

}  // namespace pando::bench
