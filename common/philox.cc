#include "common/philox.h"

#include "common/hash.h"

namespace pando {

PhiloxKey MakePhiloxKey(uint64_t seed, RandomPurpose purpose, std::string_view name) {
  const uint64_t hash = Hash64(name, seed ^ (uint64_t{static_cast<uint32_t>(purpose)} << 56));
  return {static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)};
}

}  // namespace pando
