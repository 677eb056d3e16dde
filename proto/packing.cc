#include "proto/packing.h"

#include <fmt/core.h>
#include <zlib.h>

#include <bit>
#include <cstring>
#include <memory>

#include "common/check.h"

namespace pando {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr size_t kWord = sizeof(uint64_t);
constexpr size_t kRatioMax = 1032;  // no text gets shorter by more with zlib

}  // namespace

Blob Pack(std::span<const uint64_t> words) {
  uLongf size = compressBound(words.size_bytes());
  const auto packed = std::make_shared<std::vector<uint64_t>>(1 + (size + kWord - 1) / kWord);
  (*packed)[0] = words.size();
  const int code =
      compress2(reinterpret_cast<Bytef*>(packed->data() + 1), &size,
                reinterpret_cast<const Bytef*>(words.data()), words.size_bytes(), Z_BEST_SPEED);
  PANDO_CHECK(code == Z_OK);
  packed->resize(1 + (size + kWord - 1) / kWord);
  packed->shrink_to_fit();
  return Blob(std::as_bytes(std::span(*packed)), packed);
}

Result<std::vector<uint64_t>> Unpack(std::span<const std::byte> bytes, size_t words_max) {
  if (bytes.size() < kWord) return Corrupt("packed words that have no size");
  uint64_t count = 0;
  std::memcpy(&count, bytes.data(), kWord);
  if (count > words_max)
    return Corrupt(fmt::format("{} packed words, at most {} are allowed", count, words_max));
  if (count > kRatioMax * bytes.size() / kWord)
    return Corrupt(fmt::format("{} packed words in {} bytes", count, bytes.size()));
  std::vector<uint64_t> words(count);
  uLongf size = count * kWord;
  const int code =
      uncompress(reinterpret_cast<Bytef*>(words.data()), &size,
                 reinterpret_cast<const Bytef*>(bytes.data() + kWord), bytes.size() - kWord);
  if (code != Z_OK || size != count * kWord) return Corrupt("packed words that zlib cannot read");
  return words;
}

}  // namespace pando
