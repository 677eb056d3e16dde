// Philox4x32-10 on the GPU, as in common/philox.h, which names its source.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace pando::cuda {

struct PhiloxKey2 {
  uint32_t low = 0;
  uint32_t high = 0;
};

__device__ inline uint4 Philox4x32(uint4 counter, PhiloxKey2 key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter.x, b = uint64_t{0xCD9E8D57} * counter.z;
    counter =
        make_uint4(static_cast<uint32_t>(b >> 32) ^ counter.y ^ key.low, static_cast<uint32_t>(b),
                   static_cast<uint32_t>(a >> 32) ^ counter.w ^ key.high, static_cast<uint32_t>(a));
    key.low += 0x9E3779B9;
    key.high += 0xBB67AE85;
  }
  return counter;
}

}  // namespace pando::cuda
