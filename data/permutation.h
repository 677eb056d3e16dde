// Permutation is a permutation of [0, size) that can be evaluated at any index without storing it:
// a Feistel network over the next even power of two, cycle-walked back into range. There is one per
// (seed, epoch), so every epoch is a shuffle that every process can compute (P37).
// Source: Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002.
#pragma once

#include <cstdint>

#include "common/philox.h"

namespace pando {

class Permutation {
 public:
  Permutation(uint64_t size, uint64_t seed, uint64_t epoch);  // REQUIRES: size ≥ 1
  uint64_t size() const { return size_; }
  // Returns the image of the index, a bijection of [0, size()). REQUIRES: index < size().
  uint64_t At(uint64_t index) const;

 private:
  uint64_t Encrypt(uint64_t x) const;
  uint64_t size_;
  uint32_t epoch_low_;
  uint32_t epoch_high_;
  int half_bits_;
  PhiloxKey key_;
};

}  // namespace pando
