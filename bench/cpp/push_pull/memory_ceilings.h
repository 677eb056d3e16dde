// What one core's memory allows at most: the ceilings of operations that touch each byte once.
#pragma once

#include <cstdint>

namespace pando::bench {

// GB/s, one thread, over as many buffers as shards are in flight. Counted as push-pull counts: the
// bytes that come (b, the source) and those that are there afterwards (a, the copy), 2 × `bytes` an
// operation.
double MemcpyGbPerS(uint64_t bytes, uint32_t buffer_count, double seconds);
double AddGbPerS(uint64_t bytes, uint32_t buffer_count, double seconds);  // a += b, floats

}  // namespace pando::bench
