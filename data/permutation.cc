#include "data/permutation.h"

#include <bit>

#include "common/check.h"

namespace pando {
namespace {

constexpr uint32_t kRounds = 6;  // four make a Feistel network a strong pseudo-random permutation

}  // namespace

Permutation::Permutation(uint64_t size, uint64_t seed, uint64_t epoch)
    : size_(size),
      epoch_low_(static_cast<uint32_t>(epoch)),
      epoch_high_(static_cast<uint32_t>(epoch >> 32)),
      half_bits_(static_cast<int>(std::bit_width(size - 1) + 1) / 2),
      key_(MakePhiloxKey(seed, RandomPurpose::kShuffle)) {
  PANDO_CHECK(size >= 1 && half_bits_ <= 31);
}

uint64_t Permutation::Encrypt(uint64_t x) const {
  const uint32_t mask = (1u << half_bits_) - 1;
  uint32_t left = static_cast<uint32_t>(x >> half_bits_);
  uint32_t right = static_cast<uint32_t>(x) & mask;
  for (uint32_t round = 0; round < kRounds; ++round) {
    const uint32_t mixed =
        left ^ (Philox4x32({right, round, epoch_low_, epoch_high_}, key_)[0] & mask);
    left = right;
    right = mixed;
  }
  return uint64_t{left} << half_bits_ | right;
}

uint64_t Permutation::At(uint64_t index) const {
  PANDO_CHECK(index < size_);
  uint64_t x = index;
  do {  // at most 4 times on average: the network's domain is below 4 · size
    x = Encrypt(x);
  } while (x >= size_);
  return x;
}

}  // namespace pando
