// The order in which blocks, warps and lanes take turns, from a seed.
#pragma once

#include <cstdint>

namespace pando::ptx {

// SplitMix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t x = state_ += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
  // REQUIRES: 0 < end < 2^32.
  uint64_t Below(uint64_t end) { return ((Next() >> 32) * end) >> 32; }

 private:
  uint64_t state_;
};

}  // namespace pando::ptx
