#include "common/hash.h"

#include <xxhash.h>

#include <array>

#include "common/check.h"

namespace pando {

uint64_t Hash64(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

uint64_t RecordHash(Version version, std::span<const float> parameters,
                    std::span<const float> state) {
  return Hash64(std::as_bytes(state), Hash64(std::as_bytes(parameters), version.value()));
}

struct Hash128::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Hash128::Hash128() : state_(std::make_unique<State>()) {
  PANDO_CHECK(state_->xxh != nullptr && XXH3_128bits_reset(state_->xxh) == XXH_OK);
}

Hash128::~Hash128() = default;

void Hash128::Update(std::span<const std::byte> bytes) {
  PANDO_CHECK(XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size()) == XXH_OK);
}

std::string Hash128::Hex() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_->xxh));
  constexpr std::array<char, 17> kDigits{"0123456789abcdef"};
  std::string hex;
  for (unsigned char byte : canonical.digest) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

}  // namespace pando
