#include "common/philox.h"

#include "common/hash.h"

namespace pando {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53,
                   kMultiplier1 = 0xCD9E8D57;  // from the paper, section 4.3
constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

}  // namespace

PhiloxBlock Philox4x32(PhiloxBlock c, PhiloxKey key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t p0 = uint64_t{kMultiplier0} * c[0];
    const uint64_t p1 = uint64_t{kMultiplier1} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(p0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return c;
}

PhiloxKey MakePhiloxKey(uint64_t seed, RandomPurpose purpose, std::string_view name) {
  const uint64_t hash = Hash64(name, seed ^ (uint64_t{static_cast<uint32_t>(purpose)} << 56));
  return {static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)};
}

}  // namespace pando
