#include "common/hash.h"

#include <xxhash.h>

#include <charconv>
#include <system_error>

#include "common/check.h"
#include "common/hash128.h"

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
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  return HexText(hash.high64) + HexText(hash.low64);
}

std::string HexText(uint64_t number) {
  std::string text(16, '0');
  for (size_t i = text.size(); number != 0; number >>= 4)
    text[--i] = "0123456789abcdef"[number & 15];
  return text;
}

std::optional<uint64_t> ParseHex(std::string_view text) {
  uint64_t number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number, 16);
  if (error != std::errc{} || end != last) return std::nullopt;
  return number;
}

}  // namespace pando
