// Philox4x32-10, a counter-based random generator: it has random access, has no state to keep or
// send, and gives the same numbers on every backend (P37).
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace pando {

using PhiloxKey = std::array<uint32_t, 2>;
using PhiloxBlock = std::array<uint32_t, 4>;  // also the 128-bit counter, low word first

// `constexpr`, so that kernels on a GPU call it too.
constexpr PhiloxBlock Philox4x32(PhiloxBlock counter, PhiloxKey key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;  // this and the next are from section 4.3
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t p0 = kMultiplier0 * counter[0], p1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

// The purpose of a random number is part of the key, so that no two uses share numbers.
enum class RandomPurpose : uint32_t { kInit, kDropout, kAugment, kShuffle, kSynthetic, kVerify };

// Makes the key of (seed, purpose, stable name). The name is a layer's or a tensor's, or empty.
PhiloxKey MakePhiloxKey(uint64_t seed, RandomPurpose purpose, std::string_view name = {});

// Returns a uniform number in [0, 1) with 24 bits, which a float holds exactly.
inline float UniformFloat(uint32_t bits) {
  return static_cast<float>(bits >> 8) * (1.0f / 16777216.0f);
}

// Returns the i-th of a block's eight 16-bit uniforms (P37). Dropout compares it with a threshold.
constexpr uint32_t Uniform16(const PhiloxBlock& block, unsigned i) {
  return block[i / 2] >> (16 * (i % 2)) & 0xffff;
}

}  // namespace pando
