// SHA-256 (FIPS 180-4), for files that come from elsewhere: `pando data fetch` knows what it
// expects.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace pando {

class Sha256 {
 public:
  void Update(std::span<const std::byte> bytes);
  std::string Hex();  // 64 hex digits; once, after all updates

 private:
  static constexpr size_t kBlockBytes = 64;
  void AddBlock(const uint8_t* block);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, kBlockBytes> pending_{};
  uint64_t byte_count_ = 0;
};

}  // namespace pando
